"""Divergence from the reference: estimators of a KL from one sample a decision, and the domain's exact value where it
has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

import torch
from pydantic import Field

from groupwise.config import PieceFromPath
from groupwise.objective.decisions import LOG_LIMIT, Decisions, PerDecision, known_gradient
from groupwise.objective.slot import DivergenceSlot, per_decision_problem
from groupwise.schedule import AnySchedule, Constant

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


class Penalty(DivergenceSlot):
    """The base of the divergence estimators. `D` is `[B, T]`, in nats, and 0 where both log-probs are 0; the loss adds
    `beta sum w D`.
    """

    beta: AnySchedule = Constant(value=0.04)
    """The coefficient, a number or a schedule; adaptive kinds follow the measured divergence, once per update."""
    against: Literal["reference", "behaviour"] = "reference"
    """The reference policy, or the policy that acted (source 002's form: it pulls towards where the update started)."""
    place: Literal["loss", "reward"] = "loss"
    """In the loss, or subtracted from the reward as `beta sum_t (lp_old - lp_ref)` before advantages."""

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Fields beyond the log-probs of the two policies that every loss has."""
        return frozenset({"reference_log_prob"} if self.against == "reference" and self.beta.may_be_positive() else ())

    def refuses(self, objective: Objective) -> Iterator[str]:
        """Yields a sentence for each setting under which the penalty cannot act, and for a negative coefficient."""
        kind = objective.divergence.kind
        if self.place == "reward":
            if not self.fits_reward:
                yield (
                    f"divergence.place = 'reward' takes the k1 estimator, and divergence.kind is {kind!r}; write"
                    " divergence.kind = 'k1', or divergence.place = 'loss'"
                )
            if not objective.advantage.takes_negative:
                yield (
                    f"advantage.kind = {objective.advantage.kind!r} takes no negative reward, and divergence.place ="
                    " 'reward' makes rewards negative; write divergence.place = 'loss', or advantage.kind = 'centred'"
                )
            if self.against == "behaviour":
                yield (
                    "divergence.against = 'behaviour' is ineffective in the reward, where it is 0; write"
                    " divergence.against = 'reference'"
                )
        if self.needs_reference and self.against == "behaviour":
            yield (
                f"divergence.kind = {kind!r} is measured against the reference; write divergence.against ="
                " 'reference', or another divergence.kind"
            )
        if (lowest := self.beta.extremes()[0]) < 0:
            yield f"divergence.beta comes down to {lowest:g}, and a penalty is not negative; write numbers from 0 up"


@final
class Absolute(Penalty):
    """`D = |lp - lp_ref|`.

    On-policy its gradient is that of twice the total variation between policy and reference.

    Example:
        A decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(Absolute()(decisions, log_prob - 0.6931, None)), 4)
        0.6931
    """

    kind: Literal["abs"] = "abs"

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        return (decisions.log_prob - reference_log_prob).abs()


@final
class Exact(Penalty):
    """`D` as the domain gives it in `Scored.exact_divergence`: `|mu - mu_ref|^2 / (2 sigma^2)` for Gaussians, the
    categorical KL over the remaining picks, ...

    A domain that cannot supply it is refused before the first step.
    """

    needs_reference: ClassVar[bool] = True
    kind: Literal["exact"] = "exact"

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"exact_divergence"} if self.beta.may_be_positive() else ())

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        assert exact is not None
        return exact


@final
class K1(Penalty):
    """`D = lp - lp_ref`, and `D = lp_old - lp` with `against = "behaviour"`.

    Unbiased in value for KL(pi || ref), but in the loss its mean gradient on-policy is exactly 0 although the KL's is
    not: it warns there. Its place is the reward (`place = "reward"`). Against the policy that acted, whose samples
    these are, it is unbiased for KL(old || pi): source 002's form.

    Example:
        A decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K1()(decisions, log_prob - 0.6931, None)), 4)
        0.6931

    Source: Schulman 2020, "Approximating KL divergence".
    """

    fits_reward: ClassVar[bool] = True
    kind: Literal["k1"] = "k1"

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields a remark that the estimator has no gradient on average in the loss."""
        if self.place == "loss":
            yield (
                f"divergence.kind = 'k1' in the loss against the {self.against} policy: its mean gradient on-policy is"
                " exactly 0, so it only adds variance; write divergence.kind = 'k3_unbiased', or divergence.place ="
                " 'reward'"
            )

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        gap = decisions.log_prob - reference_log_prob
        return -gap if self.against == "behaviour" else gap


@final
class K2(Penalty):
    """`D = (lp - lp_ref)^2 / 2`.

    On-policy its gradient is that of KL(pi || ref); its value is biased.

    Example:
        A decision the reference finds half as likely: `ln(2)^2 / 2`.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K2()(decisions, log_prob - 0.6931, None)), 4)
        0.2402

    Source: Schulman 2020, "Approximating KL divergence".
    """

    kind: Literal["k2"] = "k2"

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        return 0.5 * (decisions.log_prob - reference_log_prob).square()


@final
class K3(Penalty):
    """`D = exp(x) - x - 1` with `x = lp_ref - lp`; beyond `x = 80` it continues as a straight line, with the slope that
    it has there.

    Computed by `expm1`, so that a drift of 1e-4 is not lost to rounding in fp32. Never negative, unbiased in value for
    KL(pi || ref); on-policy its gradient is that of KL(ref || pi).

    Example:
        A decision the reference finds half as likely: `1/2 + ln 2 - 1`.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K3()(decisions, log_prob - 0.6931, None)), 4)
        0.1931

    Source: GRPO, arXiv 2402.03300, equation 4.
    """

    kind: Literal["k3"] = "k3"

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        gap = reference_log_prob - decisions.log_prob.detach()
        clamped = gap.clamp(max=LOG_LIMIT)
        grown = clamped.expm1()
        beyond = gap.sub(clamped).clamp_(max=torch.finfo(gap.dtype).max / math.exp(LOG_LIMIT) / 2)
        # Where x is tiny, rounding may leave expm1(x) below x.
        value = torch.addcmul(grown - clamped, beyond, grown).clamp_(min=0)
        return known_gradient(decisions.log_prob, value, -grown)


_NEAR = 1.0
"""Below it `exp(x) - 1 - x` is computed as it is; above, `1 - (x + 1) exp(-x)` cancels nothing, and `r exp(x)` is
one exponential that cannot overflow.
"""


@final
class K3Unbiased(Penalty):
    """`D = r (exp(x) - x - 1)` with `x = lp_ref - lp` and `r = exp(lp - lp_old)`, its value clamped in the exponents at
    80.

    Its gradient by `lp` is `-r x`, and is taken so: differentiated term by term it is a difference of two numbers near
    `r exp(x)`.

    Never negative. Unbiased in value and gradient for KL(pi || ref) also off-policy.

    Example:
        On-policy its value is that of k3: `1/2 + ln 2 - 1` for a decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K3Unbiased()(decisions, log_prob - 0.6931, None)), 4)
        0.1931

    Source: DeepSeek-V3.2, arXiv 2512.02556; TRL's default since 1.0.
    """

    kind: Literal["k3_unbiased"] = "k3_unbiased"

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        gap = reference_log_prob - decisions.log_prob.detach()
        still = decisions.detached()
        # Only the upper side is clamped: an underflowing ratio is 0, while a lower bound would multiply `exp(x)`.
        log_ratio = torch.minimum(still.log_ratio.clamp(max=LOG_LIMIT), still.log_prob - still.acted.old_log_prob)
        ratio = log_ratio.exp()
        near = ratio * (gap.clamp(max=_NEAR).expm1() - gap)
        far = (log_ratio + gap).clamp_(max=LOG_LIMIT).exp_() * (1 - (gap + 1) * torch.exp(-gap.clamp(min=_NEAR)))
        value = torch.where(gap <= _NEAR, near, far).clamp_(min=0)
        return known_gradient(decisions.log_prob, value, -ratio * gap)


@final
class NoDivergence(DivergenceSlot):
    """`D = 0`: no reference is needed and none is forwarded."""

    beta: ClassVar[AnySchedule] = Constant(value=0.0)
    against: ClassVar[str] = "nothing"
    place: ClassVar[str] = "loss"
    neutral: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        return decisions.log_prob.new_zeros(decisions.mask.shape)


@final
class CallableDivergence(PieceFromPath, DivergenceSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `Penalty`, which lists the class variables that it may set.

    Example:
        >>> CallableDivergence(path="groupwise.objective.divergence:K2").against
        'reference'
    """

    base: ClassVar[type[Penalty]] = Penalty

    beta: ClassVar[AnySchedule]
    against: ClassVar[str]
    place: ClassVar[str]

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[1])


Divergence = Annotated[
    NoDivergence | K1 | K2 | K3 | K3Unbiased | Absolute | Exact | CallableDivergence, Field(discriminator="kind")
]
