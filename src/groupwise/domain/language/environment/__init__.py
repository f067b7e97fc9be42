"""Environments of conversations: who answers the policy, when a conversation ends, and what it earns. The environment's
tokens are read by the policy and never trained on.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.language.environment.base import Environment, EnvironmentKind, Step
from groupwise.domain.language.environment.callable import CallableEnvironment
from groupwise.domain.language.environment.chat_tools import ChatTools
from groupwise.domain.language.environment.guess_the_number import GuessTheNumber
from groupwise.domain.language.environment.tools import Tools

__all__ = [
    "CallableEnvironment",
    "ChatTools",
    "Environment",
    "EnvironmentConfig",
    "EnvironmentKind",
    "GuessTheNumber",
    "Step",
    "Tools",
]

EnvironmentConfig = Annotated[GuessTheNumber | Tools | ChatTools | CallableEnvironment, Field(discriminator="kind")]
"""Any environment, told apart by `kind`."""
