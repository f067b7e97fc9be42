"""The configuration of a model on a server that speaks the Tinker API. Imports neither torch nor the SDK."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config.errors import Positive, Seed
from groupwise.domain.exported import Card, Export
from groupwise.domain.language.config import LanguageConfig, LanguageModel
from groupwise_tinker.saved import SavedState

if TYPE_CHECKING:
    from groupwise.domain.language.policy import Policy
    from groupwise.streams import Streams


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
