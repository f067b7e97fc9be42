"""The file `tinker.json` in a model's folder: where a server keeps the weights. Imports neither torch nor the SDK."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import final

from groupwise.config import ConfigError, read_json

FILE = "tinker.json"


@final
@dataclass(frozen=True)
class SavedState:
    """The place of trained weights on a server.

    Args:
        address: the address of the server.
        base_model: name of the base model, as the server knows it.
        rank: the rank of the adapter.
        state: path of weights and moments, with which training continues.
        weights: path of the adapter alone, in the form of peft.

    Example:
        >>> SavedState("http://127.0.0.1:8000", "models/small", 8, "tinker://a/weights/b", "tinker://a/c").rank
        8
    """

    address: str
    base_model: str
    rank: int
    state: str
    weights: str

    def write(self, folder: Path) -> None:
        """Writes the file into a folder that exists."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Returns whether the folder names a state on a server."""
        return (folder / FILE).is_file()

    @classmethod
    def read(cls, folder: Path) -> SavedState:
        """Reads the file.

        Raises:
            ConfigError: it is absent, damaged, or lacks a key.
        """
        table = read_json(folder / FILE)
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names if name not in table]:
            raise ConfigError(
                f"{folder / FILE} lacks {', '.join(missing)}: it is not what a run on a server wrote; repeat the run,"
                " or put the file back"
            )
        return cls(**{name: table[name] for name in names})
