"""Pictures inside a page: read from the run folder, made small, each held once, within a budget."""

from __future__ import annotations

import base64
import hashlib
import io
from pathlib import Path
from typing import final

from groupwise.config.files import read_whole

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


@final
class Pictures:
    """Data addresses of pictures, numbered in the order in which they were first asked for.

    Args:
        most_bytes: of all addresses together; what comes after is left out and counted.
        most_pixels: the longer side of a picture; larger ones are made smaller.

    Example:
        >>> Pictures(1000).add(Path("nowhere"), "a.png") is None
        True
    """

    def __init__(self, most_bytes: int, most_pixels: int = 160) -> None:
        self.addresses: list[str] = []
        self.num_left_out = 0
        self.num_unreadable = 0
        self._left = most_bytes
        self._most_pixels = most_pixels
        self._known: dict[str, int] = {}

    def add(self, root: Path, place: str) -> int | None:
        """The number of a picture in `addresses`.

        Args:
            root: the run folder; nothing outside it is read.
            place: as a record names it, relative to the root.

        Returns:
            its number, or `None` where it cannot be read or the budget is spent.
        """
        content = self._read(root, place)
        if content is None:
            self.num_unreadable += 1
            return None
        name = hashlib.blake2b(content, digest_size=16).hexdigest()
        if name not in self._known:
            address = _address(content, self._most_pixels)
            if address is None:
                self.num_unreadable += 1
                return None
            if len(address) > self._left:
                self.num_left_out += 1
                return None
            self._left -= len(address)
            self._known[name] = len(self.addresses)
            self.addresses.append(address)
        return self._known[name]

    def _read(self, root: Path, place: str) -> bytes | None:
        try:
            path = (root / place).resolve()
            if not path.is_relative_to(root.resolve()):
                return None
            return read_whole(path)
        # A name may hold what no path can, such as a zero byte.
        except (OSError, ValueError):
            return None


def _address(content: bytes, most_pixels: int) -> str | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = opened.convert("RGB")
    # A damaged file may raise anything its format's reader can.
    except Exception:
        return None
    image.thumbnail((most_pixels, most_pixels), Image.Resampling.LANCZOS)
    small = min(
        (
            (_encoded(image, "PNG", optimize=True), _encoded(image, "WEBP", quality=82))
            if max(image.size) > 64
            else (_encoded(image, "PNG", optimize=True),)
        ),
        key=lambda each: len(each[1]),
    )
    return f"data:image/{small[0].lower()};base64,{base64.b64encode(small[1]).decode()}"


def _encoded(image: object, kind: str, **settings: object) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **settings)  # type: ignore[attr-defined]
    return kind, buffer.getvalue()
