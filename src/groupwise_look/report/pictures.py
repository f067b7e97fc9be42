"""Pictures inside a page: read from the run folder, scaled down, stored once each, within a budget of bytes."""

import base64
import hashlib
import io
from pathlib import Path
from typing import final

from groupwise.config.files import read_whole

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


@final
class Pictures:
    """Data addresses of pictures, numbered in the order in which they were first added.

    Args:
        most_bytes: bytes of all addresses together; pictures beyond them are left out and counted.
        most_pixels: the longer side of a picture; larger pictures are scaled down.

    Example:
        >>> Pictures(1000).add(Path("nowhere"), "a.png") is None
        True
    """

    def __init__(self, most_bytes: int, most_pixels: int = 160) -> None:
        self.addresses: list[str] = []
        self.num_left_out = 0
        self.num_unreadable = 0
        self._bytes_left = most_bytes
        self._most_pixels = most_pixels
        self._indices: dict[str, int] = {}

    def add(self, root: Path, place: str) -> int | None:
        """Adds a picture, or finds it among those added before, and returns its number in `addresses`.

        Args:
            root: the run folder; no file outside of it is read.
            place: path of the picture relative to the root.

        Returns:
            its number, or `None` where it cannot be read or the budget is spent.
        """
        content = self._read(root, place)
        name = hashlib.blake2b(content or b"", digest_size=16).hexdigest()
        if name not in self._indices:
            address = None if content is None else _address(content, self._most_pixels)
            if address is None:
                self.num_unreadable += 1
                return None
            if len(address) > self._bytes_left:
                self.num_left_out += 1
                return None
            self._bytes_left -= len(address)
            self._indices[name] = len(self.addresses)
            self.addresses.append(address)
        return self._indices[name]

    def _read(self, root: Path, place: str) -> bytes | None:
        try:
            path = (root / place).resolve()
            if not path.is_relative_to(root.resolve()):
                return None
            return read_whole(path)
        # A record may name a path that no file system accepts, for example one with a zero byte.
        except (OSError, ValueError):
            return None


def _address(content: bytes, most_pixels: int) -> str | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = opened.convert("RGB")
    # The reader of a format may raise any exception on a damaged file.
    except Exception:
        return None
    image.thumbnail((most_pixels, most_pixels), Image.Resampling.LANCZOS)
    encodings = [_encoded(image, "PNG", optimize=True)]
    if max(image.size) > 64:
        encodings.append(_encoded(image, "WEBP", quality=82))
    kind, smallest = min(encodings, key=lambda encoding: len(encoding[1]))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(smallest).decode()}"


def _encoded(image: object, kind: str, **settings: object) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **settings)  # type: ignore[attr-defined]
    return kind, buffer.getvalue()
