"""Behaviour correction: a detached weight `k` for what the sampler really did, `exp(lp_old - lp_behaviour)`, bounded;
of decisions, or of whole members.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.correction.callable import CallableCorrection
from groupwise.objective.correction.interval import Interval
from groupwise.objective.correction.mask import Mask
from groupwise.objective.correction.none import NoCorrection
from groupwise.objective.correction.truncate import Truncate

__all__ = ["CallableCorrection", "Correction", "Interval", "Mask", "NoCorrection", "Truncate"]

Correction = Annotated[
    NoCorrection | Truncate | Mask | Interval | CallableCorrection,
    Field(discriminator="kind"),
]
