"""Divergence from the reference: estimators of a KL from one sample a decision, and the domain's exact value where it
has one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.divergence.abs import Absolute
from groupwise.objective.divergence.callable import CallableDivergence
from groupwise.objective.divergence.exact import Exact
from groupwise.objective.divergence.k1 import K1
from groupwise.objective.divergence.k2 import K2
from groupwise.objective.divergence.k3 import K3
from groupwise.objective.divergence.k3_unbiased import K3Unbiased
from groupwise.objective.divergence.none import NoDivergence

__all__ = ["K1", "K2", "K3", "Absolute", "CallableDivergence", "Divergence", "Exact", "K3Unbiased", "NoDivergence"]

Divergence = Annotated[
    NoDivergence | K1 | K2 | K3 | K3Unbiased | Absolute | Exact | CallableDivergence, Field(discriminator="kind")
]
