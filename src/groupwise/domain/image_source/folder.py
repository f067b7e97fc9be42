"""Images of the user: a folder of clean images, or two folders of pairs."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError
from groupwise.config.numbers import Positive
from groupwise.domain.image_source.base import Picture, Pictures
from groupwise.domain.image_source.image_file import UnreadableImage, read_image

_MAX_LISTED = 20
"""The most files that a message lists."""

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}


@final
class Folder(Config):
    """Images of a folder, in natural order (image9 before image10); a pair is two files of the same name, whatever
    their suffix.

    Images are turned as their EXIF data say; hidden files are passed over, other files that are no images are counted.

    Args:
        clean: the folder with the targets.
        degraded: the folder with the degraded images; unset, a degradation makes them.
        scale: how many times larger than the degraded images' the sides of the clean ones are, for super-resolution.
        channels: 3 reads colour, 1 grey; a file of the other kind is an error, as are more than 8 bits, transparency
            and several images in a file.
        num_held_out: images kept for evaluation, spread evenly over the folder.
        on_corrupt: a file that cannot be read is an error, or is left out, counted and named.

    Images must be of one size, unless `domain.patch` cuts patches out of them.
    """

    kind: Literal["folder"] = "folder"
    clean: Annotated[str, Field(min_length=1)]
    degraded: str | None = None
    scale: Annotated[int, Field(ge=1, le=16)] = 1
    channels: Literal[1, 3] = 3
    num_held_out: Positive = 8
    on_corrupt: Literal["error", "skip"] = "skip"

    def read(self, key: str = "source") -> Pictures:
        """Reads all images and splits them.

        Args:
            key: of the configuration that holds this source, for errors.

        Raises:
            ConfigError: no folder, no image, an image without its partner, a pair of two sizes, another number of
                channels; names the file.
        """
        remarks: list[str] = []
        clean = _files(Path(self.clean), f"{key}.clean", remarks)
        degraded = _files(Path(self.degraded), f"{key}.degraded", remarks) if self.degraded is not None else None
        if self.degraded is not None and Path(self.degraded).samefile(self.clean):
            raise ConfigError(
                f"{key}.degraded = {self.degraded!r} is the folder of the clean images; give the folder of the"
                " degraded ones, or remove it and a degradation makes them"
            )
        if degraded is not None and set(clean) != set(degraded):
            unpaired = sorted(set(clean) ^ set(degraded), key=natural)
            folder = self.clean if unpaired[0] in clean else self.degraded
            raise ConfigError(
                f"{key}: {unpaired[0]!r} is in {folder} and has no partner in the other folder ({len(unpaired)} such);"
                " give both, or move it away"
            )
        pictures: list[Picture] = []
        corrupt: list[str] = []
        first_error = ""
        for name in sorted(clean, key=natural):
            try:
                target = read_image(clean[name], self.channels, key)
                degraded_pixels = None if degraded is None else read_image(degraded[name], self.channels, key)
            except UnreadableImage as error:
                if self.on_corrupt == "error":
                    raise ConfigError(
                        f"{key}: {error.path} cannot be read ({error}); replace it, or write on_corrupt = 'skip'"
                    ) from error
                first_error = first_error or str(error)
                corrupt.append(error.path.name if degraded is None else f"{error.path.parent.name}/{error.path.name}")
                continue
            if degraded_pixels is not None and tuple(target.shape[1:]) != tuple(
                side * self.scale for side in degraded_pixels.shape[1:]
            ):
                sizes = f"{list(degraded_pixels.shape[1:])} and {list(target.shape[1:])}"
                requirement = (
                    f"both must be of one size (for super-resolution write {key}.scale)"
                    if self.scale == 1
                    else f"the clean one must have {key}.scale = {self.scale} times the sides, to the pixel; cut it"
                )
                raise ConfigError(
                    f"{key}: {degraded[name]} and {clean[name]} "  # type: ignore[index]
                    f"are a pair of sizes {sizes}; {requirement}"
                )
            pictures.append(Picture(name, target, degraded_pixels, file=str(clean[name])))
        if corrupt:
            more = f" and {len(corrupt) - _MAX_LISTED} more" if len(corrupt) > _MAX_LISTED else ""
            remarks.append(
                f"data: images left out because they cannot be read: {len(corrupt)}"
                f" ({', '.join(corrupt[:_MAX_LISTED])}{more}); the first: {first_error}"
            )
        if len(pictures) <= self.num_held_out:
            smaller = f", or a smaller {key}.num_held_out" if self.num_held_out > 1 and len(pictures) > 1 else ""
            left_out = "".join(f"; {remark.removeprefix('data: ')}" for remark in remarks)
            raise ConfigError(
                f"{key}: images in {self.clean} that can be read: {len(pictures)}, and {self.num_held_out} are to be"
                f" held out; give at least {self.num_held_out + 1}{smaller}{left_out}"
            )
        return Pictures.spread(pictures, self.num_held_out, remarks)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Makes a key by which `image9` sorts before `image10`.

    Example:
        >>> sorted(["image10", "image9", "b"], key=natural)
        ['b', 'image9', 'image10']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _files(folder: Path, key: str, remarks: list[str]) -> dict[str, Path]:
    """Lists the images of a folder by name; its remaining contents become a remark."""
    if not folder.is_dir():
        reason = "it is a file and no folder" if folder.exists() else "no such folder"
        raise ConfigError(f"{key} = {str(folder)!r}: {reason}; write one with images")
    files: dict[str, Path] = {}
    ignored: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix.lower() not in _SUFFIXES or path.is_dir():
            ignored.append(f"{path.name}/" if path.is_dir() else path.name)
            continue
        # One system writes an accented letter as one character, another as two.
        name = unicodedata.normalize("NFC", path.stem)
        if name in files:
            raise ConfigError(
                f"{key}: {path} and {files[name]} have the same name, and a pair is told by it; rename one"
            )
        files[name] = path
    ignored_text = (
        f"{len(ignored)} ({', '.join(ignored[:_MAX_LISTED])}{', ...' if len(ignored) > _MAX_LISTED else ''})"
        if ignored
        else ""
    )
    if not files:
        ignored_hint = f"; what lies there: {ignored_text}, and folders inside it are not searched" if ignored else ""
        raise ConfigError(
            f"{key} = {str(folder)!r}: no image in it ({', '.join(sorted(_SUFFIXES))} are read){ignored_hint}"
        )
    if ignored:
        remarks.append(f"data: passed over in {folder}, being no images that are read: {ignored_text}")
    return files
