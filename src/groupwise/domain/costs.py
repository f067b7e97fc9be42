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
        served: whether servers sample.
        server_share: share of a device's memory that a server takes which the run starts on it; 0 where none is.
        server_sleeps: whether that server gives its memory back while nothing is sampled.
    """

    path: str
    config: Mapping[str, Any] | None
    prompt_tokens: float | None
    max_new_tokens: int
    bfloat16: bool
    lora_rank: int | None
    served: bool = False
    server_share: float = 0.0
    server_sleeps: bool = False


@final
@dataclass(frozen=True)
class PassCost:
    """The cost of passes of one kind.

    Args:
        flops: operations a row.
        row_bytes: what a row holds at once.
        fixed_bytes: what any pass holds beside its rows.
        seconds: of a row, measured on this machine; unset where it was not.
    """

    flops: float
    row_bytes: float
    fixed_bytes: float
    seconds: float | None = None

    def bytes(self, rows: int) -> float:
        """Returns what a pass of so many rows holds."""
        return self.fixed_bytes + rows * self.row_bytes

    def rows(self, budget_bytes: float) -> int:
        """Returns how many rows a pass of so many bytes has, at least one.

        Example:
            >>> PassCost(1.0, row_bytes=100.0, fixed_bytes=50.0).rows(400.0)
            3
        """
        return max(1, int((budget_bytes - self.fixed_bytes) // max(self.row_bytes, 1.0)))


@final
@dataclass(frozen=True)
class ImageCosts:
    """The costs of a model that makes images, counted by passing rows through it.

    Args:
        name: of the model, with the size of its images.
        parameters, trained: numbers of weights.
        weight_bytes, frozen_bytes, trained_bytes: of the model, of its frozen parts (text encoders, autoencoder), and
            of the weights that are trained.
        forward, update, decode: of a pass without gradient, of one with gradient, and of making an image of what was
            sampled (no decoding: None).
        rows_of_model: rows of the model a transition: two under guidance.
        sampled_a_prompt, sampled_a_member: rows of sampling.
        updated_a_prompt, updated_a_member: rows of an update.
        member_bytes: what a sampled member holds until its update.
        stated_rows: rows of a pass, where the experiment states them.
        is_counted: whether sizes were counted without weights, on no device.
        keeps_graph: whether what sampling computed is kept for the first update, where one pass holds all of it.
    """

    name: str
    parameters: int
    trained: int
    weight_bytes: float
    frozen_bytes: float
    trained_bytes: float
    forward: PassCost
    update: PassCost
    decode: PassCost | None
    rows_of_model: int
    sampled_a_prompt: int
    sampled_a_member: int
    updated_a_prompt: int
    updated_a_member: int
    member_bytes: float
    stated_rows: int | None
    is_counted: bool
    keeps_graph: bool = False
