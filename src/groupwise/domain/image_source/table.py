"""Images that a table names: a `.jsonl` file with the path of an image in each row, and mostly that of its target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, nearest, read_json_lines
from groupwise.config.numbers import Positive
from groupwise.domain.filled_columns import filled_columns
from groupwise.domain.image_source.base import Picture, Pictures
from groupwise.domain.image_source.image_file import UnreadableImage, read_image

_RESERVED = ("prompt", "degraded", "clean")
_TARGET = "target"
_READ_UNDER = {"degraded": "image_column", "clean": "target_column"}


@final
class Table(Config):
    """Images of the rows of a `.jsonl` file, in the file's order; the other columns are for rewards, None where a
    row lacks one.

    A path is relative to the folder of the table. An image's name is its path as the row has it.

    Args:
        path: of the table.
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
            key: of the configuration that holds this source, for errors.

        Raises:
            ConfigError: a row without an image, one image twice, a file that cannot be read or is of another kind, a
                pair of two sizes, a column that rewards know as another; names the line and the file.
        """
        pictures = [self._picture(place, row, key) for place, row in read_json_lines(self.path, f"{key}.path")]
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
        if len(pictures) <= self.num_held_out:
            raise ConfigError(
                f"{key}.path = {self.path!r} has {len(pictures)} rows, and {self.num_held_out} are to be held out;"
                f" write num_held_out = {max(1, len(pictures) - 1)}, or give at least {self.num_held_out + 1} rows"
            )
        columns = filled_columns([picture.columns for picture in pictures])
        filled = [replace(picture, columns=row) for picture, row in zip(pictures, columns, strict=True)]
        return Pictures.spread(filled, self.num_held_out)

    def _picture(self, place: str, row: dict[str, Any], key: str) -> Picture:
        columns = {name: value for name, value in row.items() if name not in (self.image_column, self.target_column)}
        if taken := next((name for name in _RESERVED if name in columns), None):
            advice = self._advice(taken, row, key)
            raise ConfigError(
                f"{place} has a column {taken!r}, under which rewards find something else; {advice} (what is taken:"
                f" {', '.join(_RESERVED)})"
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
            self._check_no_target(place, row, columns, key)
            return Picture(name, image, image, columns, str(file), has_target=False)
        target_file = Path(self.path).parent / target_text
        target = self._pixels(place, target_file, key)
        if image.shape != target.shape:
            raise ConfigError(
                f"{place}: {file} and {target_file} are a pair of sizes {list(image.shape[1:])} and"
                f" {list(target.shape[1:])}; both must be of one size"
            )
        return Picture(name, target, image, columns, str(file))

    def _advice(self, taken: str, row: dict[str, Any], key: str) -> str:
        column_key = _READ_UNDER.get(taken)
        is_meant = column_key is not None and getattr(self, column_key) not in row
        return f"set {key}.{column_key} = {taken!r} to read it as that, or rename it" if is_meant else "rename it"

    def _check_no_target(self, place: str, row: dict[str, Any], columns: dict[str, Any], key: str) -> None:
        """Refuses a row whose target stands under a name much like that of its column."""
        if self.target_column in row:
            return
        folder = Path(self.path).parent
        paths = [name for name, value in columns.items() if isinstance(value, str) and (folder / value).is_file()]
        if (meant := nearest(self.target_column, paths)) is not None:
            raise ConfigError(
                f"{place} has no column {self.target_column!r}, and its column {meant!r} names a file; set"
                f" {key}.target_column = {meant!r}, or rename that column"
            )

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
