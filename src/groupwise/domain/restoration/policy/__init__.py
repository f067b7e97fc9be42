"""Policies over a network's output: every pixel is drawn, or its control parameters are. One file a kind; the mode of
each is the network as it ships.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.restoration.policy.config import Gates, Pixels

PolicyConfig = Annotated[Pixels | Gates, Field(discriminator="kind")]
"""Any policy, told apart by `kind`."""

__all__ = ["Gates", "Pixels", "PolicyConfig"]
