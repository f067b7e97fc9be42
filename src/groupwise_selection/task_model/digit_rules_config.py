"""The configuration of the digit-rule model. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.errors import Count, Length, PerStep, Seed, Width

if TYPE_CHECKING:
    from groupwise_selection.task_model.base import TaskModel


@final
class DigitRules(Config):
    """A small transformer trained here to answer digit-rule questions from demonstrations alone, and frozen; see
    `task_model.digit_rules`.

    Args:
        dimensions: principal components of an image that it reads; as many as the source's rules are made of.
        width: width of the layers.
        num_layers: number of transformer layers.
        num_heads: number of attention heads.
        num_steps: optimiser steps of its training.
        batch_size: episodes of a step.
        learning_rate: highest learning rate of its schedule.
        seed: seed of weights and episodes. It is not the run's seed: runs with different seeds are judged by the same
            model.
        cache: keep the trained model between runs.
    """

    MOST_DEMOS: ClassVar[int] = 8
    """The highest number of demonstrations in a prompt of the model."""

    kind: Literal["digit_rules"] = "digit_rules"
    dimensions: Annotated[int, Field(ge=2, le=16)] = 4
    width: Annotated[Width, Field(ge=4)] = 64
    num_layers: Length = 2
    num_heads: Width = 4
    num_steps: Count = 1500
    batch_size: PerStep = 128
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    seed: Seed = 0
    cache: bool = True

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the trained model, from the cache where it was trained before."""
        from groupwise_selection.task_model.digit_rules import open_model

        return open_model(self, device)
