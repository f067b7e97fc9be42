"""A class of your own that admits groups, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import FromPath
from groupwise.objective.slot import AdmissionSlot


@final
class CallableAdmission(FromPath, AdmissionSlot):
    """What the class at `path` does, configured by `settings`.

    The class extends `AdmissionSlot`, which lists what it may state.

    Example:
        >>> CallableAdmission(path="groupwise.objective.admission.informative:Informative").piece
        Informative(kind='informative')
    """

    base: ClassVar[type[AdmissionSlot]] = AdmissionSlot
