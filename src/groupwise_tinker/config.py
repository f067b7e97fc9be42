"""The configuration of a model on a server that speaks the Tinker API, and the file `tinker.json` in a model's folder:
where a server keeps the weights. Imports neither torch nor the SDK.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import ConfigError, read_json
from groupwise.config.errors import Positive, Seed
from groupwise.domain.exported import Card, Export
from groupwise.domain.language.config import LanguageConfig, LanguageModel

if TYPE_CHECKING:
    from groupwise.domain.language.policy import Policy
    from groupwise.streams import Streams


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


def _address(address: str) -> str:
    if not re.match(r"https?://[^/\s]", address):
        place = address.rpartition("/")[2] or "HOST:PORT"
        raise ValueError(f"must begin with http:// or https://; write http://{place}")
    return address


@final
class Tinker(LanguageModel):
    """A LoRA adapter on a server that speaks the Tinker API; the server samples, scores, differentiates and steps.

    Args:
        address: the address of the server, for example `http://127.0.0.1:8000`.
        base_model: name of the base model, as the server knows it.
        tokenizer: a local folder or a hub id of its tokenizer; unset takes `base_model`.
        state: path of a state on the server, with which the adapter begins; unset begins as the base model.
        rank: the rank of the adapter.
        seed: the seed of the adapter's initial weights; unset takes the run's.
        max_positions: longest prompt and completion together, tokens; unset states no limit.
        length_multiple: sequences are padded to a multiple of this, so that a compiling server compiles seldom.
        fewest_rows: a request is padded to this many sequences times a power of two, for the same reason.
        timeout_seconds: deadline of a call; the first one of each shape may compile.

    Example:
        >>> Tinker(address="http://127.0.0.1:8000", base_model="models/small").rank
        8
    """

    kind: Literal["tinker"] = "tinker"
    address: Annotated[str, AfterValidator(_address)]
    base_model: Annotated[str, Field(min_length=1)]
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    state: Annotated[str, Field(min_length=1)] | None = None
    rank: Positive = 8
    seed: Seed | None = None
    max_positions: Positive | None = None
    length_multiple: Positive = 16
    fewest_rows: Positive = 8
    timeout_seconds: Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)] = 600.0

    def open(self, config: LanguageConfig, streams: Streams) -> Policy:
        from groupwise_tinker.policy import TinkerPolicy, check_config

        check_config(config)
        return TinkerPolicy(self, config.engine, streams.seed("model") if self.seed is None else self.seed)

    @classmethod
    def saved_in(cls, folder: Path) -> dict[str, Any] | None:
        if not SavedState.is_in(folder):
            return None
        saved = SavedState.read(folder)
        place = {"address": saved.address, "base_model": saved.base_model, "rank": saved.rank, "state": saved.state}
        return {"kind": "tinker", "tokenizer": str(folder), **place}

    @classmethod
    def export(cls, request: Export) -> Card:
        from groupwise_tinker.policy import export_adapter

        return export_adapter(request)
