"""The configuration of the ticket model. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.errors import Count, PerStep, Seed, Width
from groupwise_selection.task_model.template import TextTemplate

if TYPE_CHECKING:
    from groupwise_selection.task_model.base import TaskModel

TEMPLATE = TextTemplate(question="{question}:", answer=" {answer}", separator="\n")


@final
class TicketLM(Config):
    """A causal language model that is trained here to send tickets as the solved ones before it were sent, saved as a
    folder, and loaded from there.

    Args:
        width: width of the layers.
        num_steps: optimiser steps of its training.
        batch_size: texts of a step, sixteen tickets each.
        learning_rate: highest learning rate of its schedule.
        seed: seed of weights and texts. It is not the run's seed: runs with different seeds are judged by the same
            model.

    Example:
        >>> TicketLM().width
        64
    """

    kind: Literal["ticket_lm"] = "ticket_lm"
    width: Annotated[Width, Field(ge=8, multiple_of=8)] = 64
    num_steps: Count = 600
    batch_size: PerStep = 32
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-3
    seed: Seed = 0

    @property
    def template(self) -> TextTemplate:
        """The template of the prompts: a solved ticket a line."""
        return TEMPLATE

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the trained model from its folder, without a cache of answers: computing them costs less."""
        from groupwise_selection.task_model.ticket_lm import open_model

        return open_model(self, device)
