"""Smoothing: `r -> r'` along one member's decisions, with gradient and without state across steps. Maps log-ratios to
log-ratios.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.smoothing.callable import CallableSmoothing
from groupwise.objective.smoothing.ema import Ema
from groupwise.objective.smoothing.identity import Identity

__all__ = ["CallableSmoothing", "Ema", "Identity", "Smoothing"]

Smoothing = Annotated[
    Identity | Ema | CallableSmoothing,
    Field(discriminator="kind"),
]
