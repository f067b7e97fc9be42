"""A user's class that admits groups, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import AdmissionSlot


@final
class CallableAdmission(PieceFromPath, AdmissionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdmissionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdmission(path="groupwise.objective.admission.informative:Informative").piece
        Informative(kind='informative')
    """

    base: ClassVar[type[AdmissionSlot]] = AdmissionSlot
