"""Admission: which groups train at all. Nothing is dropped by its reward: keeping the best of a group would delete its
negatives.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.admission.all import Everything
from groupwise.objective.admission.callable import CallableAdmission
from groupwise.objective.admission.informative import Informative
from groupwise.objective.admission.positive_share import PositiveShare
from groupwise.objective.admission.resample import Resample

__all__ = ["Admission", "CallableAdmission", "Everything", "Informative", "PositiveShare", "Resample"]

Admission = Annotated[
    Everything | Informative | PositiveShare | Resample | CallableAdmission, Field(discriminator="kind")
]
