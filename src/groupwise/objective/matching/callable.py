"""A user's class that learns from noised copies, by import path."""

from __future__ import annotations

from typing import Any, ClassVar, final

from groupwise.config import PieceError, PieceFromPath
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.noise_times import NoiseTimes
from groupwise.objective.noised_copies import NoisedCopies
from groupwise.objective.slot import MatchingSlot
from groupwise.objective.slot_result import matching_problem, surrogate_problem

_ERRORS = frozenset({"positive_error", "negative_error"})
"""The fields that nothing but a matching gives."""


@final
class CallableMatching(PieceFromPath, MatchingSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `NoisedCopies`, which lists the class variables that it may set.

    Example:
        >>> path = "groupwise.objective.matching.mirrored:Mirrored"
        >>> CallableMatching(path=path, settings={"strength": 0.1}).piece.clip
        5.0
    """

    base: ClassVar[type[NoisedCopies]] = NoisedCopies

    times: ClassVar[NoiseTimes]
    deterministic: ClassVar[bool]

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return matching_problem(result, len(arguments[0].live), {"log_prob"} | self.reads & _ERRORS)

    def surrogate(self, decisions: Decisions) -> Surrogate:
        result = self.called("surrogate", decisions)
        if problem := surrogate_problem(result, decisions.mask):
            raise PieceError(f"path = {str(self.path)!r}: surrogate: {problem} (see {self.base.__name__})", result)
        return result
