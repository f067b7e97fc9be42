"""The quantities on which the cost of a step depends, for `groupwise estimate`. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class CausalLm:
    """The costs of a causal language model, the kind of policy whose cost is modelled.

    Args:
        path: a model folder or hub id; empty where the model is made for its data.
        config: of transformers, where the model is made for its data.
        prompt_tokens: mean tokens of a prompt; unset where the data were not read.
        max_new_tokens: longest completion, tokens.
        bfloat16: whether weights are held in it.
        lora_rank: of the adapter; unset trains all weights.
    """

    path: str
    config: Mapping[str, Any] | None
    prompt_tokens: float | None
    max_new_tokens: int
    bfloat16: bool
    lora_rank: int | None
