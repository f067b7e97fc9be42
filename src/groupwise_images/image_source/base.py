"""Sources of images, some trained on and some held out."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import numpy as np
from pydantic import Field

from groupwise.config import Config, ConfigError, read_rows
from groupwise.config.errors import PerStep, Positive, Width
from groupwise.config.files import check_file
from groupwise.domain.exported import filled_columns

if TYPE_CHECKING:
    from PIL.Image import Image


def as_float(pixels: np.ndarray) -> np.ndarray:
    """Converts pixels of a picture, or of a part of it, to fp32 in [0, 1].

    Example:
        >>> import numpy
        >>> as_float(numpy.array([0, 51, 255], dtype="uint8")).tolist()
        [0.0, 0.20000000298023224, 1.0]
    """
    return pixels.astype("float32") / 255 if pixels.dtype == "uint8" else pixels


@final
@dataclass(frozen=True)
class Picture:
    """An image to restore, with its name and its columns for rewards.

    Args:
        key: its name, stable over runs.
        clean: `[C, H, W]`, the target: fp32 in [0, 1], or uint8 as a file holds it, a quarter of the memory; `as_float`
            reads both.
        degraded: as `clean`, where the source has one; otherwise a degradation makes it.
        columns: JSON-able, for rewards (`label`, ...).
        file: where it was read, for messages; empty where it is in no file of its own.
        has_target: false where nobody gave a target; `clean` is then the degraded image once more.
    """

    key: str
    clean: np.ndarray
    degraded: np.ndarray | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    has_target: bool = True

    @cached_property
    def content(self) -> str:
        """A hash of the target, by which the same image is recognised under another name."""
        return hashlib.blake2b(
            repr((self.clean.shape, self.clean.dtype)).encode() + self.clean.tobytes(), digest_size=16
        ).hexdigest()


@final
@dataclass(frozen=True)
class Pictures:
    """The images of a source.

    Args:
        train: trained on.
        held_out: evaluated, never trained on.
        remarks: what was left out, in sentences.
    """

    train: Sequence[Picture]
    held_out: Sequence[Picture]
    remarks: Sequence[str] = ()

    @staticmethod
    def spread(pictures: Sequence[Picture], num_held_out: int, key: str, remarks: Sequence[str] = ()) -> Pictures:
        """Holds out `num_held_out` pictures, spread evenly over all of them.

        Raises:
            ConfigError: there are too few.

        Example:
            >>> pixels = __import__("numpy").zeros((1, 2, 2))
            >>> pictures = Pictures.spread([Picture(str(place), pixels) for place in range(6)], 2, "source")
            >>> [picture.key for picture in pictures.held_out]
            ['1', '4']
        """
        if len(pictures) <= num_held_out:
            left_out = "".join(f"; {remark.removeprefix('data: ')}" for remark in remarks)
            raise ConfigError(
                f"{key}: images that can be read: {len(pictures)}, and {num_held_out} are to be held out; give at least"
                f" {num_held_out + 1}, or a smaller {key}.num_held_out{left_out}"
            )
        spacing = len(pictures) / num_held_out
        places = {round((number + 0.5) * spacing - 0.5) for number in range(num_held_out)}
        train = [picture for place, picture in enumerate(pictures) if place not in places]
        return Pictures(train, [pictures[place] for place in sorted(places)], remarks)


# An image file, read as pixels; what is not an image of the expected kind is refused by name.


@final
class UnreadableImage(Exception):
    """A file that is damaged, missing, or no image.

    Args:
        path: the path of the file.
        error: the error of the decoder.

    Example:
        >>> str(UnreadableImage(Path("a.png"), OSError("cannot identify image file")))
        'OSError: cannot identify image file'
    """

    def __init__(self, path: Path, error: Exception) -> None:
        reason = str(error).replace(f" {str(path)!r}", "").rstrip(": ")
        super().__init__(f"{type(error).__name__}: {reason}")
        self.path = path


def read_image(path: Path, channels: int, key: str = "source", *, trained: bool = False) -> np.ndarray:
    """Reads uint8 `[C, H, W]`, turned as the EXIF data state.

    Args:
        path: the path of the file.
        channels: 3 reads colour, 1 grey.
        key: the key of the configuration that names the file, for errors.
        trained: whether a trained model has these channels, so that the file alone can be changed.

    Raises:
        UnreadableImage: it is damaged, missing, or no image.
        ConfigError: an image of another kind: more than 8 bits, transparent, several images, or other channels.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> file = Path(tempfile.mkdtemp()) / "a.png"
        >>> Image.new("L", (4, 2), 255).save(file)
        >>> read_image(file, 1).shape
        (1, 2, 4)
    """
    from PIL import Image, ImageOps

    try:
        check_file(path)
        with warnings.catch_warnings():
            # Pillow warns of large images; it refuses huge ones by itself, and sizes are compared by name.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path)
        with image:
            # Pillow reads a colour file of 16 bits as one of 8 without a warning.
            deep = image.mode.startswith("I") or image.mode == "F" or ";16" in str(image.tile)
            # A camera keeps a preview or a depth map behind the photograph (MPO).
            if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
                raise ConfigError(
                    f"{key}: {path} holds {image.n_frames} images ({image.format}); "  # type: ignore[attr-defined]
                    "store each as a file of its own"
                )
            return _pixels(path, ImageOps.exif_transpose(image), channels, deep, key, trained)
    except ConfigError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, DecompressionBombError and more for files that they cannot read.
        raise UnreadableImage(path, error) from error


def _named(channels: int) -> str:
    return "grey" if channels == 1 else "colour"


def _pixels(path: Path, image: Image, channels: int, deep: bool, key: str, trained: bool) -> np.ndarray:
    """Converts an opened image to uint8 `[C, H, W]`, and refuses an image of another kind than the source's."""
    if deep:
        raise ConfigError(
            f"{key}: {path} has more than 8 bits a channel ({image.mode}); store it with 8 bits, white at 255"
        )
    # A palette of greys can be either.
    grey = image.mode in ("L", "LA", "1")
    is_grey_palette = image.mode == "P" and all(
        r == g == b
        for _, (r, g, b) in image.convert("RGB").getcolors(maxcolors=256) or []  # type: ignore[misc]
    )
    if grey != (channels == 1) and not is_grey_palette:
        description = f"{path} is {_named(1 if grey else 3)} ({image.mode})"
        if trained:
            raise ConfigError(f"{key}: {description}, and the model restores {_named(channels)} images; convert it")
        raise ConfigError(
            f"{key}: {description}, and {key}.channels = {channels}; write channels = {1 if grey else 3}, or convert it"
        )
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[:, :, 3].min() < 255:
        raise ConfigError(
            f"{key}: {path} is transparent in places ({image.mode}), and a network restores {channels} channels; store"
            " it without transparency"
        )
    array = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


# Images of the user: a folder of clean images, or two folders of pairs.

_MAX_LISTED = 20
"""The most files that a message lists."""

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}


Template = Annotated[str, Field(pattern=r"^[^{}/]*\{name\}[^{}/]*$")]
"""A file's name without its suffix, in which `{name}` stands once."""


@final
class Folder(Config):
    """Images of a folder, in natural order (image9 before image10); a pair is two files of the same name, whatever
    their suffix.

    Images are turned as their EXIF data state; hidden files are passed over, other files that are not images are
    counted.

    Args:
        clean: the folder with the targets.
        degraded: the folder with the degraded images; unset, a degradation makes them.
        clean_name, degraded_name: how the files of a pair are named, `{name}` standing for what both share:
            `degraded_name = "{name}x4"` pairs `0001x4.png` with `0001.png`. Files named otherwise are passed over and
            counted; with two names both may lie in one folder.
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
    clean_name: Template = "{name}"
    degraded_name: Template = "{name}"
    scale: Annotated[int, Field(ge=1, le=16)] = 1
    channels: Literal[1, 3] = 3
    num_held_out: Positive = 8
    on_corrupt: Literal["error", "skip"] = "skip"

    def read(self, key: str = "source") -> Pictures:
        """Reads all images and splits them.

        Args:
            key: the key of the configuration that holds this source, for errors.

        Raises:
            ConfigError: no folder, no image, an image without its partner, a pair of two sizes, another number of
                channels; names the file.
        """
        remarks: list[str] = []
        clean = _of_form(
            _files(Path(self.clean), f"{key}.clean", remarks), self.clean_name, f"{key}.clean_name", remarks
        )
        degraded = None
        if self.degraded is not None:
            files = _files(Path(self.degraded), f"{key}.degraded", remarks)
            degraded = _of_form(files, self.degraded_name, f"{key}.degraded_name", remarks)
        one_name = self.clean_name == self.degraded_name
        if self.degraded is not None and one_name and Path(self.degraded).samefile(self.clean):
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
        return Pictures.spread(pictures, self.num_held_out, key, remarks)


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
    more = ", ..." if len(ignored) > _MAX_LISTED else ""
    ignored_text = f"{len(ignored)} ({', '.join(ignored[:_MAX_LISTED])}{more})"
    if not files:
        ignored_hint = f"; what lies there: {ignored_text}, and folders inside it are not searched" if ignored else ""
        raise ConfigError(
            f"{key} = {str(folder)!r}: no image in it ({', '.join(sorted(_SUFFIXES))} are read){ignored_hint}"
        )
    if ignored:
        remarks.append(f"data: passed over in {folder}, being no images that are read: {ignored_text}")
    return files


def _of_form(files: dict[str, Path], template: str, key: str, remarks: list[str]) -> dict[str, Path]:
    """Returns the files whose names have the form of the template, by what stands for `{name}` in them."""
    form = re.compile(re.escape(template).replace(re.escape("{name}"), "(.+)"))
    found = {match[1]: path for name, path in files.items() if (match := form.fullmatch(name))}
    if not found:
        raise ConfigError(f"{key} = {template!r}: no file is named so; {sorted(files, key=natural)[0]!r} is there")
    if len(found) < len(files):
        remarks.append(f"data: passed over, being named otherwise than {key} = {template!r}: {len(files) - len(found)}")
    return found


_RESERVED = ("prompt", "degraded", "clean")
_TARGET = "target"


@final
class Table(Config):
    """Images of the rows of a table (`.jsonl`, `.csv`, ...), in the file's order; the other columns are for rewards,
    None where a row lacks one.

    A path is relative to the folder of the table. An image's name is its path as the row has it.

    Args:
        path: the path of the table.
        image_column: column with the path of the image to restore.
        target_column: column with the path of its target; a row without one cannot be learnt from by supervision.
        channels: 3 reads colour, 1 grey; files are refused as those of `kind = "folder"` are.
        num_held_out: rows kept for evaluation, spread evenly over the table.

    Example:
        >>> import json, tempfile
        >>> from PIL import Image
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("blurred.png", "sharp.png"):
        ...     Image.new("L", (8, 8), 128).save(folder / name)
        >>> row = {"image": "blurred.png", "target": "sharp.png", "text": "7"}
        >>> lines = [json.dumps(row), json.dumps({"image": "sharp.png", "text": "3"})]
        >>> _ = (folder / "pairs.jsonl").write_text("\\n".join(lines))
        >>> pictures = Table(path=str(folder / "pairs.jsonl"), channels=1, num_held_out=1).read()
        >>> [(picture.key, picture.has_target, dict(picture.columns)) for picture in pictures.train]
        [('sharp.png', False, {'text': '3'})]
    """

    kind: Literal["table"] = "table"
    path: Annotated[str, Field(min_length=1)]
    image_column: Annotated[str, Field(min_length=1)] = "image"
    target_column: Annotated[str, Field(min_length=1)] = _TARGET
    channels: Literal[1, 3] = 3
    num_held_out: Positive = 8

    def read(self, key: str = "source") -> Pictures:
        """Reads all images and splits them.

        Args:
            key: the key of the configuration that holds this source, for errors.

        Raises:
            ConfigError: a row without an image, one image twice, a file that cannot be read or is of another kind, a
                pair of two sizes, a column that rewards know as another; names the line and the file.
        """
        pictures = [self._picture(place, row, key) for place, row in read_rows(self.path, f"{key}.path")]
        lines: dict[str, int] = {}
        for number, picture in enumerate(pictures, 1):
            if (first := lines.setdefault(picture.key, number)) != number:
                raise ConfigError(
                    f"{key}.path = {self.path!r}: rows {first} and {number} name the same image {picture.key!r}, and"
                    " an image is told by its path; leave one out"
                )
        if self.target_column != _TARGET and not any(picture.has_target for picture in pictures):
            raise ConfigError(
                f"{key}.target_column = {self.target_column!r}: no row of {self.path!r} has such a column; write one"
                " that is there, or leave it out where there are no targets"
            )
        columns = filled_columns([picture.columns for picture in pictures])
        filled = [replace(picture, columns=row) for picture, row in zip(pictures, columns, strict=True)]
        return Pictures.spread(filled, self.num_held_out, key)

    def _picture(self, place: str, row: dict[str, Any], key: str) -> Picture:
        columns = {name: value for name, value in row.items() if name not in (self.image_column, self.target_column)}
        if taken := next((name for name in _RESERVED if name in columns), None):
            raise ConfigError(
                f"{place} has a column {taken!r}, under which rewards find something else; rename it, or set"
                f" {key}.image_column or {key}.target_column to read it as that"
            )
        name = self._path_text(place, row, self.image_column)
        if name is None:
            raise ConfigError(
                f"{place} has no path in column {self.image_column!r} (there: {sorted(row)}); set"
                f" {key}.image_column, or give it one"
            )
        file = Path(self.path).parent / name
        image = self._pixels(place, file, key)
        target_text = self._path_text(place, row, self.target_column)
        if target_text is None:
            return Picture(name, image, image, columns, str(file), has_target=False)
        target_file = Path(self.path).parent / target_text
        target = self._pixels(place, target_file, key)
        if image.shape != target.shape:
            raise ConfigError(
                f"{place}: {file} and {target_file} are a pair of sizes {list(image.shape[1:])} and"
                f" {list(target.shape[1:])}; both must be of one size"
            )
        return Picture(name, target, image, columns, str(file))

    def _path_text(self, place: str, row: dict[str, Any], column: str) -> str | None:
        text = row.get(column)
        if text is not None and (not isinstance(text, str) or not text.strip()):
            raise ConfigError(f"{place}: column {column!r} is {text!r}; write the path of an image file")
        return text

    def _pixels(self, place: str, file: Path, key: str) -> Any:
        try:
            return read_image(file, self.channels, key)
        except UnreadableImage as error:
            raise ConfigError(f"{place}: {file} cannot be read ({error}); replace it, or leave the row out") from error


# scikit-learn's handwritten digits: 1,797 real images of 8 x 8 pixels with their labels. Nothing is downloaded.


@final
class Digits(Config):
    """The first `num_train` images of a fixed shuffle are trained on, the others are held out.

    Example:
        >>> pictures = Digits(num_train=1200).read()
        >>> (
        ...     len(pictures.train),
        ...     len(pictures.held_out),
        ...     pictures.train[0].clean.shape,
        ...     sorted(pictures.train[0].columns),
        ... )
        (1200, 597, (1, 8, 8), ['label'])
    """

    kind: Literal["digits"] = "digits"
    num_train: Annotated[int, Field(ge=1, le=1796)] = 1200

    @property
    def channels(self) -> int:
        """1, grey."""
        return 1

    def read(self, key: str = "source") -> Pictures:
        """Reads all images.

        Args:
            key: the key of the configuration that holds this source, for errors.
        """
        images, labels = handwritten()
        order = np.random.default_rng(0).permutation(len(labels))
        pictures = [
            Picture(f"digit-{index}", images[index][None].copy(), columns={"label": int(labels[index])})
            for index in order.tolist()
        ]
        return Pictures(pictures[: self.num_train], pictures[self.num_train :])


# Parsing the library's text file takes longer than opening a small model.
@cache
def handwritten() -> tuple[np.ndarray, np.ndarray]:
    """Returns all images `[1797, 8, 8]` in [0, 1] and their labels. They are shared: a caller that changes them has to
    copy them first.
    """
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    return (digits.images / 16).astype("float32"), digits.target.astype("int64")


_TRAIN = ("astronaut", "coffee", "rocket", "flower")
_HELD_OUT = ("cat", "china")


@final
class Photographs(Config):
    """Patches of four photographs are trained on, patches of two others are held out: no photograph is in both.

    Trained on: astronaut, coffee and rocket (scikit-image), flower (scikit-learn). Held out: cat (scikit-image) and
    china (scikit-learn).

    Args:
        size: the size of a patch, pixels; patches of one photograph do not overlap.
        num_train, num_held_out: patches, spread evenly over the photographs.
        grey: their brightness alone (ITU-R 601, as JPEG has it), one channel.

    Example:
        >>> pictures = Photographs(size=64, num_train=8, num_held_out=4).read()
        >>> len(pictures.train), pictures.held_out[0].clean.shape, pictures.held_out[0].key
        (8, (3, 64, 64), 'cat-0-0')
    """

    kind: Literal["photographs"] = "photographs"
    size: Annotated[Width, Field(ge=8)] = 48
    num_train: PerStep = 128
    num_held_out: PerStep = 48
    grey: bool = False

    @property
    def channels(self) -> int:
        """3, colour, or 1."""
        return 1 if self.grey else 3

    def read(self, key: str = "source") -> Pictures:
        """Cuts patches out of all photographs.

        Args:
            key: the key of the configuration that holds this source, for errors.

        Raises:
            ValueError: there are fewer patches than asked for.
        """
        return Pictures(
            self._patches(_TRAIN, self.num_train, f"{key}.num_train"),
            self._patches(_HELD_OUT, self.num_held_out, f"{key}.num_held_out"),
        )

    def _patches(self, names: tuple[str, ...], number: int, key: str) -> list[Picture]:
        photographs: list[list[Picture]] = []
        for name in names:
            image = _brightness(_photograph(name)) if self.grey else _photograph(name)
            rows, columns = image.shape[1] // self.size, image.shape[2] // self.size
            corners = [(row * self.size, column * self.size) for row in range(rows) for column in range(columns)]
            photographs.append(
                [
                    Picture(f"{name}-{top}-{left}", image[:, top : top + self.size, left : left + self.size])
                    for top, left in corners
                ]
            )
        num_patches = sum(len(patches) for patches in photographs)
        if number > num_patches:
            raise ValueError(
                f"{key} = {number}: the photographs have {num_patches} patches of {self.size} pixels; write at"
                f" most {num_patches}, or a smaller size"
            )
        chosen: list[Picture] = []
        for place, patches in enumerate(photographs):
            share = min(len(patches), -(-(number - len(chosen)) // (len(photographs) - place)))
            step = len(patches) / share if share else 1
            chosen += [patches[int(index * step)] for index in range(share)]
        # A photograph with few patches leaves its share to the others.
        chosen_keys = {picture.key for picture in chosen}
        chosen += [picture for patches in photographs for picture in patches if picture.key not in chosen_keys][
            : number - len(chosen)
        ]
        return chosen


def _brightness(image: np.ndarray) -> np.ndarray:
    """Computes `0.299 R + 0.587 G + 0.114 B`, `[1, H, W]`."""
    return (0.299 * image[:1] + 0.587 * image[1:2] + 0.114 * image[2:]).astype("float32")


def _photograph(name: str) -> np.ndarray:
    if name in ("flower", "china"):
        from sklearn.datasets import load_sample_image

        image = load_sample_image(f"{name}.jpg")
    else:
        from skimage import data

        image = getattr(data, name)()
    return (np.asarray(image)[:, :, :3].astype("float32") / 255).transpose(2, 0, 1)
