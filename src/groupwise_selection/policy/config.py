"""The policy as configuration. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import Length, Seed, Width

POLICY, WEIGHTS = "policy.json", "model.safetensors"


@final
class Pointer(Config):
    """A pointer network with fresh weights. Before any training it picks by similarity: its greedy choice is the
    nearest neighbours, nearest first.

    Args:
        width: width of the layers.
        num_heads: number of attention heads.
        num_layers: number of layers in which the examples of a pool attend to each other before any is picked.
        scale: factor of the similarity in the logits, nats per unit of cosine; it decides how widely sampling spreads
            at the start.
        answer_size: number of hashed features of a demonstration's answer.
        stop_probability: probability of ending at each decision after the first pick, before any training, where
            `domain.stop` allows it (at temperature 1).
        seed: seed of fresh weights; unset takes the run's.
        dtype: dtype of the weights.
    """

    kind: Literal["pointer"] = "pointer"
    width: Annotated[Width, Field(ge=4)] = 48
    num_heads: Width = 4
    num_layers: Length = 1
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    answer_size: Width = 32
    stop_probability: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    seed: Seed | None = None
    dtype: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _sound(self) -> Pointer:
        if self.width % self.num_heads:
            raise ValueError(
                f"width = {self.width} cannot be divided among num_heads = {self.num_heads}; write a multiple of it"
            )
        return self


@final
class Pretrained(Config):
    """A folder that Groupwise wrote: `policy.json` holds the sizes and the order, `model.safetensors` holds the
    weights.

    Args:
        path: the folder.
    """

    kind: Literal["pretrained"] = "pretrained"
    path: Annotated[str, Field(min_length=1)]


ModelConfig = Annotated[Pointer | Pretrained, Field(discriminator="kind")]
"""Any policy, distinguished by `kind`."""
