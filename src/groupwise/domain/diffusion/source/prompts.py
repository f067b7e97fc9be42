"""Prompts from a file: one text a line, or JSON Lines with columns for the rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, read_json_lines
from groupwise.config.files import read_whole
from groupwise.domain.diffusion.source.base import Content


@final
class PromptFile(Config):
    """A text file with one prompt a line (empty lines are left out), or a `.jsonl` file whose rows have a column with
    the prompt.

    A row that asks for a class by its number (`label`) needs no text.

    Args:
        prompt_column: of a `.jsonl` file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "prompts.txt"
        >>> _ = file.write_text("a red cube\\na blue ball\\n")
        >>> [row["prompt"] for row in PromptFile(path=str(file)).read().prompts]
        ['a red cube', 'a blue ball']
    """

    kind: Literal["prompts"] = "prompts"
    path: Annotated[str, Field(min_length=1)]
    prompt_column: str = "prompt"

    def read(self) -> Content:
        """Reads every distinct prompt, in the file's order.

        Raises:
            ConfigError: the file cannot be read, a row lacks the column, or there is no prompt; names file and line.
        """
        rows = self._rows() if Path(self.path).suffix.lower() == ".jsonl" else self._lines()
        if not rows:
            raise ConfigError(f"data.source.path = {self.path!r} holds no prompt; write one a line")
        return Content(list({json.dumps(row, sort_keys=True): row for row in rows}.values()))

    def _lines(self) -> list[dict[str, Any]]:
        try:
            # Some editors begin a file with a mark of its encoding; a line ends at a line feed and nowhere else.
            lines = read_whole(Path(self.path)).decode("utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"data.source.path = {self.path!r} cannot be read: {error}; give a text file with one prompt a line, or"
                " a .jsonl file"
            ) from error
        return [{"prompt": line.strip()} for line in lines if line.strip()]

    def _rows(self) -> list[dict[str, Any]]:
        return [self._row(where, row) for where, row in read_json_lines(self.path, "data.source.path")]

    def _row(self, place: str, row: dict[str, Any]) -> dict[str, Any]:
        text = row.get(self.prompt_column)
        if self.prompt_column not in row and isinstance(row.get("label"), int):
            # A class is asked for by its number; the text is for people.
            text = f"class {row['label']}"
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(
                f"{place} has no text in column {self.prompt_column!r} (there: {sorted(row)}); set"
                " data.source.prompt_column, or give it one"
            )
        return {**row, "prompt": text}
