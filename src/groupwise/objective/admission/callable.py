"""A user's class that admits groups, by import path."""

from __future__ import annotations

from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import AdmissionSlot
from groupwise.objective.slot_result import admission_problem


@final
class CallableAdmission(PieceFromPath, AdmissionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdmissionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdmission(path="groupwise.objective.admission.informative:Informative").piece
        Informative(kind='informative')
    """

    base: ClassVar[type[AdmissionSlot]] = AdmissionSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return admission_problem(result, arguments[0].num_groups)
