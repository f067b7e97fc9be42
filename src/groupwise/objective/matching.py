"""Matching: learning from noised copies of what was sampled, for models whose samples have no log-probs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.config import PieceError, PieceFromPath
from groupwise.objective.decisions import Decisions, Deviation, Surrogate
from groupwise.objective.noise import NoisedCopies, NoiseTimes
from groupwise.objective.slot import MatchingSlot, matching_problem, surrogate_problem

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Mirrored(NoisedCopies):
    """`S = -c [r L+ + (1 - r) L-] / strength` with `r = (clip(A, -c, c) / c + 1) / 2`, the share that learns.

    `L+` and `L-` are the errors of the clean sample that two mirrored predictions give, `v+ = v_old + strength (v -
    v_old)` and `v- = v_old - strength (v - v_old)`: each is `mean (x0(v+-) - x0)^2` over its own mean absolute error,
    a constant for the gradient. A good sample pulls `v` towards itself; a bad one pulls `v-`, and so pushes `v` away.

    No log-prob and no ratio is read. At `v = v_old` a sample of advantage 0 has no gradient; further on it pulls back
    to the policy that sampled.

    Example:
        On the policy that sampled, the error is 1 on both sides, and `S = -c` whatever the advantage.

        >>> import torch
        >>> live = torch.tensor([[1.0, -1.0]])
        >>> errors = Mirrored()(Deviation(live, live, torch.tensor([1.0]), torch.tensor([1.0])))
        >>> errors["positive_error"].item(), errors["negative_error"].item()
        (1.0, 1.0)

    Source: arXiv 2509.16117, equation 5 and algorithm 1; the advantage as its code clips it, with c = 5.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"positive_error", "negative_error"})
    pulls: ClassVar[bool] = True
    has_surrogate: ClassVar[bool] = True
    kind: Literal["mirrored"] = "mirrored"
    strength: float = Field(default=1.0, gt=0, le=1)
    """The distance of the mirrored predictions from the old one; small values pull back less. At `v = v_old`, as at the
    first update on a batch, the gradient is the same at any value."""
    clip: float = Field(default=5.0, gt=0)
    """`c`: advantages beyond it learn, or unlearn, fully."""
    floor: float = Field(default=1e-5, gt=0)
    """The least mean absolute error that an error is divided by."""

    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        return {
            "log_prob": -deviation.live.detach().square().mean(1),
            "positive_error": self._error(deviation.clean(self.strength)),
            "negative_error": self._error(deviation.clean(-self.strength)),
        }

    def surrogate(self, decisions: Decisions) -> Surrogate:
        assert decisions.positive_error is not None
        assert decisions.negative_error is not None
        advantage = decisions.advantage.clamp(-self.clip, self.clip)
        value = (self.clip + advantage) * decisions.positive_error + (self.clip - advantage) * decisions.negative_error
        return Surrogate(-0.5 * value, decisions.mask)

    def refuses(self, objective: Objective) -> Iterator[str]:
        idle = {
            "smoothing.kind": (objective.smoothing.kind, "identity", objective.smoothing.neutral),
            "ratio.kind": (objective.ratio.kind, "token", objective.ratio.plain),
            "trust.kind": (objective.trust.kind, "unbounded", objective.trust.kind == "unbounded"),
            "correction.kind": (objective.correction.kind, "none", objective.correction.neutral),
        }
        for key, (kind, plain_kind, is_plain) in idle.items():
            if not is_plain:
                yield (
                    f"{key} = {kind!r} is ineffective under matching.kind = 'mirrored', which reads no log-probs; write"
                    f" {key} = {plain_kind!r}"
                )
        if objective.compat is not None:
            yield (
                f"compat = {objective.compat!r} reads log-probs, and matching.kind = 'mirrored' has none; leave compat"
                " out"
            )

    def _error(self, clean: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        size = clean.detach().abs().mean(1).clamp(min=self.floor)
        return clean.square().mean(1) / size / self.strength


@final
class NoMatching(MatchingSlot):
    """Leaves the decisions as they are: no copies are noised."""

    neutral: ClassVar[bool] = True
    deterministic: ClassVar[bool] = False
    kind: Literal["none"] = "none"

    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        return {}


_SMALLEST = 1e-10
"""Added to the error before its root, whose slope at 0 is infinite."""


@final
class Velocity(NoisedCopies):
    """`lp = -w(t, l)` with `l = mean (v(x_t, t) - target)^2`, the loss of pre-training on a noised copy of the sample.

    A decision is one copy. Its `lp` takes the place of a log-prob: ratio, trust region, credit and aggregation act on
    it as on any other. At ratio one the gradient is that of `-A w(t, l)`: the pre-training loss, weighted by the
    advantage.

    Example:
        >>> import torch
        >>> live = torch.tensor([[2.0, 0.0]])
        >>> deviation = Deviation(live, live, torch.tensor([0.5]), torch.tensor([0.5]))
        >>> [
        ...     round(Velocity(weighting=weighting)(deviation)["log_prob"].item(), 4)
        ...     for weighting in ("uniform", "time", "huber")
        ... ]
        [-2.0, -1.0, -0.7071]

    Source: AWM, arXiv 2509.25050, and its code, which has the five weightings.
    """

    kind: Literal["velocity"] = "velocity"
    weighting: Literal["uniform", "time", "time_squared", "huber", "power"] = "uniform"
    """`w`: `l`, `t l`, `t^2 l`, `t sqrt(l)`, or `t l^p / p`; the last two hold large errors down."""
    power: float = Field(default=0.25, gt=0, le=1)
    """`p` of `weighting = "power"`."""

    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        error, time = deviation.live.square().mean(1), deviation.time
        if self.weighting == "time":
            error = time * error
        elif self.weighting == "time_squared":
            error = time.square() * error
        elif self.weighting == "huber":
            error = time * ((error + _SMALLEST).sqrt() - _SMALLEST**0.5)
        elif self.weighting == "power":
            error = time * ((error + _SMALLEST) ** self.power - _SMALLEST**self.power) / self.power
        return {"log_prob": -error}


_ERRORS = frozenset({"positive_error", "negative_error"})
"""The fields that only a matching slot produces."""


@final
class CallableMatching(PieceFromPath, MatchingSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `NoisedCopies`, which lists the class variables that it may set.

    Example:
        >>> path = "groupwise.objective.matching:Mirrored"
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


CopyMatching = Velocity | Mirrored | CallableMatching
"""The kinds that learn from noised copies."""

Matching = Annotated[NoMatching | Velocity | Mirrored | CallableMatching, Field(discriminator="kind")]
