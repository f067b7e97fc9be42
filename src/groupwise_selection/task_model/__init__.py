"""The models that answer, one kind a file; adding a configuration to this union is the whole registration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise_selection.task_model.digit_rules_config import DigitRules
from groupwise_selection.task_model.pretrained_config import CausalLM, ImageText
from groupwise_selection.task_model.ticket_lm_config import TicketLM

TaskModelConfig = Annotated[DigitRules | CausalLM | ImageText | TicketLM, Field(discriminator="kind")]
"""Any task model, told apart by `kind`."""

__all__ = ["CausalLM", "DigitRules", "ImageText", "TaskModelConfig", "TicketLM"]
