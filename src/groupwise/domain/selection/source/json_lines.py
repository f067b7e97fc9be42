"""Lines of JSONL files of queries and examples: fields read with errors that name the place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from groupwise.config import ConfigError
from groupwise.domain.selection.example import Example

if TYPE_CHECKING:
    import numpy as np


@final
class Line:
    """One line of a file, whose fields are read with errors that name it.

    Args:
        row: the JSON object of the line.
        where: the file and the line, for errors.
    """

    def __init__(self, row: dict[str, Any], where: str) -> None:
        self.row, self.where = row, where

    def text(self, field: str, default: str | None = None) -> str:
        value = self.row.get(field, default)
        if not isinstance(value, str):
            have = "is missing" if value is None else f"is {value!r} ({type(value).__name__})"
            raise ConfigError(f"{self.where}{self._name()}: field {field} {have}; write a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.row.get(field, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ConfigError(f"{self.where}{self._name()}: field {field} is {value!r}; write a list of texts")
        return tuple(value)

    def clusters(self) -> dict[str, str]:
        value = self.row.get("clusters", {})
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value.values()):
            raise ConfigError(
                f'{self.where}{self._name()}: field clusters is {value!r}; write names and keys, {{"image": "17"}}'
            )
        return value

    def image(self, file: Path) -> str | None:
        return None if self.row.get("image") is None else str(file.parent / self.text("image"))

    def _name(self) -> str:
        return f" ({self.row['id']!r})" if isinstance(self.row.get("id"), str) else ""


def inline(lines: Sequence[Line], alternative: str = "name a file in source.embeddings") -> np.ndarray:
    """Reads the `embedding` of every line, fp32 `[N, D]`.

    Args:
        lines: all lines of a file.
        alternative: advice in the error for lines without an embedding.

    Raises:
        ConfigError: a line has no embedding, or one of another size; the message names the line.
    """
    import numpy as np

    size = None
    for line in lines:
        value = line.row.get("embedding")
        if (
            not isinstance(value, list)
            or not all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)
            or not value
        ):
            have = "is missing" if value is None else "is no list of numbers"
            raise ConfigError(
                f"{line.where} ({line.row.get('id')!r}): field embedding {have}; write one on every line, or"
                f" {alternative}"
            )
        size = len(value) if size is None else size
        if len(value) != size:
            raise ConfigError(
                f"{line.where} ({line.row.get('id')!r}): field embedding has {len(value)} numbers, those before have"
                f" {size}"
            )
    try:
        return np.array([line.row["embedding"] for line in lines], dtype=np.float32)
    except OverflowError:
        raise ConfigError(
            f"{lines[0].where.rpartition(', ')[0]}: field embedding holds a whole number beyond all floats; an"
            " embedding has length 1"
        ) from None


def example_of(line: Line, vector: np.ndarray, file: Path) -> Example:
    """Reads a solved example from its line.

    Args:
        line: the line of the example.
        vector: embedding of the example, `[D]`.
        file: path of the file; paths of pictures are relative to its folder.

    Raises:
        ConfigError: a field is missing or of the wrong type; the message names the field.
    """
    # A missing answer is an error only where the example is in a pool; the check of pools then names the query.
    answer = "" if line.row.get("answer") is None else line.text("answer")
    return Example(line.text("id"), line.text("question"), answer, vector, line.image(file), line.clusters())
