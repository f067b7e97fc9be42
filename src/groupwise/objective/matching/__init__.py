"""Matching: learning from noised copies of what was sampled, for models whose samples have no log-probs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.matching.callable import CallableMatching
from groupwise.objective.matching.mirrored import Mirrored
from groupwise.objective.matching.none import NoMatching
from groupwise.objective.matching.velocity import Velocity

__all__ = ["CallableMatching", "CopyMatching", "Matching", "Mirrored", "NoMatching", "Velocity"]

CopyMatching = Velocity | Mirrored | CallableMatching
"""The kinds that learn from noised copies."""

Matching = Annotated[NoMatching | Velocity | Mirrored | CallableMatching, Field(discriminator="kind")]
