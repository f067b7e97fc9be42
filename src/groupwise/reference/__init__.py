"""The reference policy, with which the trained policy is compared. Each kind has a file; the policy itself is
`groupwise.reference.policy`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.reference.absent import AbsentReference
from groupwise.reference.callable import CallableReference
from groupwise.reference.ema import EmaReference
from groupwise.reference.frozen import FrozenReference
from groupwise.reference.periodic import PeriodicReference
from groupwise.reference.quality_gate import QualityGateReference
from groupwise.reference.resolve import resolve_reference
from groupwise.reference.rule import ReferenceRule

ReferenceConfig = Annotated[
    AbsentReference | FrozenReference | PeriodicReference | EmaReference | QualityGateReference | CallableReference,
    Field(discriminator="kind"),
]

__all__ = [
    "AbsentReference",
    "CallableReference",
    "EmaReference",
    "FrozenReference",
    "PeriodicReference",
    "QualityGateReference",
    "ReferenceConfig",
    "ReferenceRule",
    "resolve_reference",
]
