"""Trust region: `(rho, A) -> S`, a bound on one update, and the decisions that still carry gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.objective.decisions import (
    Decisions,
    Surrogate,
    clip_shares,
    clipped,
    covariance,
    largest,
    lots_of,
    share_of,
    stop_gradient,
)
from groupwise.objective.slot import SCOPES, TrustSlot, surrogate_problem
from groupwise.statistics import Mean, as_float

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Clip(TrustSlot):
    """`S = min(rho A, clip(rho, 1 - low, 1 + high) A)`.

    The gradient is 0 where `A > 0` and `rho > 1 + high`, and where `A < 0` and `rho < 1 - low`; a bad decision that
    grew is always corrected. At exactly `1 + high` or `1 - low` the gradient flows.

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[1.5, 0.5, 1.5]]).log()
        >>> advantage = torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), advantage)
        >>> Clip()(log_ratio, decisions).value.tolist()
        [[1.2000000476837158, -0.800000011920929, -1.5]]

    Source: arXiv 1707.06347, equation 7; two bounds: DAPO, arXiv 2503.14476, equation 10.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["clip"] = "clip"
    low: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a bad decision may fall."""
    high: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a good decision may rise."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        return Surrogate(value, ~(too_low | too_high), clip_shares(too_low, too_high, decisions))


@final
class AsymmetricClip(TrustSlot):
    """`eps = eps_pos if A > 0 else eps_neg`, `S = min(rho A, clip(rho, 1 - eps, 1 + eps) A)`.

    Because of the `min`, only the upper bound acts for good decisions and only the lower one for bad ones: this is
    exactly `clip` with `low = eps_neg, high = eps_pos`, tested as an identity. The source's own form, without `min` and
    with gradient zero on both sides, is `compat = "verl_rl"`.

    Example:
        Good, held at 1.3; bad, held at 0.9; bad and grown, corrected.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.5, 0.5, 1.5]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = AsymmetricClip()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.3, -0.9, -1.5], [False, False, True])

    Source: innovation 2.6 of source 000.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["asymmetric_clip"] = "asymmetric_clip"
    eps_pos: float = Field(default=0.3, gt=0)
    """Width for good decisions."""
    eps_neg: float = Field(default=0.1, gt=0)
    """Width for bad decisions."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, low=self.eps_neg, high=self.eps_pos)
        statistics = {
            **clip_shares(too_low, too_high, decisions),
            "asymmetric/pos_advantage_ratio": decisions.share(decisions.good),
            "asymmetric/neg_advantage_ratio": decisions.share(decisions.bad),
        }
        return Surrogate(value, ~(too_low | too_high), statistics)


@final
class DualClip(TrustSlot):
    """`clip`, and for `A < 0` at least `bound A`: `S = max(min(rho A, clip(rho) A), bound A)`.

    The gradient is 0 where the clip's is, and for bad decisions whose ratio grew beyond `bound`. At exactly `bound` it
    flows, as at the edges of the clip; automatic differentiation of the `max` would halve it there.

    Example:
        Good, held at 1.2; bad and grown, corrected; beyond 3, held.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.5, 2.0, 4.0]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = DualClip()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.2, -2.0, -3.0], [False, True, False])

    Source: arXiv 1912.09729, equation 5; verl's vanilla loss (bound 3).
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["dual_clip"] = "dual_clip"
    low: float = Field(default=0.2, gt=0)
    high: float = Field(default=0.2, gt=0)
    bound: float = Field(default=3.0, gt=1)
    """The largest ratio at which a bad decision is still corrected."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        floored = decisions.bad & (log_ratio.detach() > math.log(self.bound))
        value = torch.where(floored, self.bound * decisions.advantage, value)
        statistics = {**clip_shares(too_low, too_high, decisions), "clip_ratio/dual_mean": decisions.share(floored)}
        return Surrogate(value, ~(too_low | too_high | floored), statistics)


@final
class Unbounded(TrustSlot):
    """`S = rho A`, or with `form = "log_prob"` the score-function form `S = A lp`, which ignores the ratio (REINFORCE,
    exactly on-policy).

    Both have the gradient `A` per log-prob at `rho = 1`. Off-policy, `rho A` is unbiased with a variance that nothing
    bounds; `A lp` is biased.

    Example:
        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 0.5, 4.0]]).log(), torch.tensor([[1.0, -1.0, 1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Unbounded()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.0, -0.5, 4.0], [True, True, True])

    Source: Williams 1992; RLOO, arXiv 2402.14740, equation 4, for the `log_prob` form.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["unbounded"] = "unbounded"
    form: Literal["ratio", "log_prob"] = "ratio"

    @property
    def score_function(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when each decision keeps its own gradient at every ratio level."""
        return self.form == "log_prob"

    def refuses(self, objective: Objective) -> Iterator[str]:
        """Yields what is ineffective with a region that ignores the ratio."""
        if self.form == "ratio":
            return
        smoothing, ratio = objective.smoothing, objective.ratio
        if not smoothing.neutral:
            yield (
                f"smoothing.kind = {smoothing.kind!r} is ineffective with trust.form = 'log_prob', which ignores the"
                " ratio; write trust.form = 'ratio', or smoothing.kind = 'identity'"
            )
        if ratio.averages:
            yield (
                f"ratio.kind = {ratio.kind!r} is ineffective with trust.form = 'log_prob', which ignores the ratio;"
                " write trust.form = 'ratio', or ratio.kind = 'token'"
            )

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        factor = log_ratio.exp() if self.form == "ratio" else decisions.log_prob
        return Surrogate(factor * decisions.advantage, torch.ones_like(decisions.mask))


@final
class Cispo(TrustSlot):
    """`S = sg(min(rho, maximum)) A lp`.

    The weight is bounded, the gradient never zero. `maximum` is absolute: 5.0 as in TRL (verl writes `1 + eps`).

    Example:
        The weight times `A lp`, where `lp = ln(rho) - 1`: -1, `0.5 (-1.693)`, `-2 (0.386)`.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 0.5, 4.0]]).log(), torch.tensor([[1.0, 1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Cispo(maximum=2.0)(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.0, -0.847, -0.773], [True, True, True])

    Source: MiniMax-M1, arXiv 2506.13585, equations 4 and 5.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["cispo"] = "cispo"
    maximum: float = Field(default=5.0, gt=0)
    """The largest importance weight; below 1 it scales every decision near the old policy down."""

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields that a bound below 1 shrinks every weight."""
        if self.maximum < 1:
            yield (
                f"trust.maximum = {self.maximum:g} lies below 1, the weight of a decision that has not moved, so every"
                " weight is shrunk to it; write trust.maximum = 5.0"
            )

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        ratio = stop_gradient(log_ratio.exp())
        value = ratio.clamp(max=self.maximum) * decisions.advantage * decisions.log_prob
        capped = decisions.share((ratio > self.maximum) & decisions.good)
        return Surrogate(value, torch.ones_like(decisions.mask), {"cispo_clip_ratio": capped})


_ASPO_SMALLEST = 1e-300


@final
class Aspo(TrustSlot):
    """For `A > 0`: `S = sg(min(1 / rho, bound)) A pi / sg(pi)` where `rho <= 1 + high`, the constant `A / (1 + high)`
    beyond.

    For `A < 0`: `clip`, but `bound A pi / sg(pi)` where `rho > bound`. Rare good decisions, whose ratio is below one,
    are pushed more instead of less. The bound is soft on both sides: it limits a weight and keeps its gradient, unlike
    a dual clip's.

    Example:
        `A = 1`: ratio 1/2 weighs 2, ratio 1/10 weighs 3, ratio 1.1 weighs 1/1.1, ratio 2 is held.

        >>> ratio = torch.tensor([[0.5, 0.1, 1.1, 2.0]], dtype=torch.float64)
        >>> decisions = Decisions.of(torch.ones(1, 4, dtype=torch.bool), ratio.log(), 0 * ratio, 0 * ratio + 1)
        >>> [round(value, 6) for value in Aspo()(ratio.log(), decisions).value[0].tolist()]
        [2.0, 3.0, 0.909091, 0.833333]

    Source: arXiv 2510.06062, section 4, and its authors' code (Archer2.0), for the soft bound on both signs.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["aspo"] = "aspo"
    low: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a bad decision may fall."""
    high: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a good decision may rise."""
    bound: float = Field(default=3.0, gt=1)
    """The largest weight."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        advantage, log_level = decisions.advantage, stop_gradient(log_ratio)
        good = decisions.good
        too_high = good & (log_level > math.log1p(self.high))
        too_low = decisions.bad & (log_level < math.log(max(1 - self.low, _ASPO_SMALLEST)))
        clipped = too_high | too_low
        power = torch.where(good, -log_level, log_level)
        capped = (power > math.log(self.bound)) & ~clipped & (advantage != 0)
        edge = torch.where(good, log_ratio.new_full((), 1 / (1 + self.high)), log_ratio.new_full((), 1 - self.low))
        weight = torch.where(clipped, edge, power.clamp(max=math.log(self.bound)).exp())
        # The weight is multiplied by a unit that carries the gradient: that of the decision's own log-prob where the
        # weight is capped or inverted, and that of the ratio elsewhere.
        direct = good | capped
        carrier = torch.where(direct, decisions.log_prob, log_ratio)
        unit = torch.where(clipped, torch.ones_like(carrier), 1 + (carrier - stop_gradient(carrier)))
        statistics = {**clip_shares(too_low, too_high, decisions), "aspo/capped_mean": decisions.share(capped)}
        return Surrogate(weight * advantage * unit, ~clipped, statistics, direct)


@final
class ClipCov(TrustSlot):
    """`S` of `clip`, set to 0 at `max(1, floor(share N))` decisions drawn among those whose covariance of log-prob and
    advantage is in `(lower, upper)`.

    `N` counts the valid decisions of the whole update on all processes. Every eligible decision gets a random number
    keyed by its member's id, its place and the step; the smallest are drawn, so draws do not change with sharding.
    Decisions that the clip already holds are not eligible; where fewer are eligible than wanted, all are drawn.

    Source: Clip-Cov, arXiv 2505.22617, section 4.2; share, bounds and the wide clip are those of its authors' runs.
    """

    scope: ClassVar[str] = "batch"
    kind: Literal["clip_cov"] = "clip_cov"
    low: float = Field(default=1.0, gt=0)
    high: float = Field(default=1.0, gt=0)
    share: float = Field(default=0.0002, gt=0, le=1)
    """The share of all valid decisions that lose their gradient."""
    lower: float = 1.0
    upper: float = 5.0

    @model_validator(mode="after")
    def _ordered(self) -> ClipCov:
        if self.lower >= self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        return self

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        spread = covariance(decisions)
        eligible = decisions.mask & (spread > self.lower) & (spread < self.upper) & ~(too_low | too_high)
        places = eligible.flatten().nonzero()[:, 0]
        drawn = largest(
            -lots_of(decisions)(places), eligible, share_of(self.share, decisions), decisions.reduce, places
        )
        statistics = {**clip_shares(too_low, too_high, decisions), "clip_cov/drawn_mean": decisions.share(drawn)}
        return Surrogate(value * as_float(~drawn, value.dtype), ~(too_low | too_high | drawn), statistics)


_DPPO_SMALLEST = 1e-12


@final
class Dppo(TrustSlot):
    """`S = M sg(min(pi / mu, maximum)) A lp`, where `M` is 0 for decisions that move on, away from the sampler `mu`,
    beyond `threshold`.

    A good decision is masked when `pi > mu` and `D > threshold`, a bad one when `pi < mu` and `D > threshold`. `D` is
    the divergence of the two-valued distributions (this decision, any other): `|pi - mu|` for `measure = "tv"`, `mu
    ln(mu/pi) + (1-mu) ln((1-mu)/(1-pi))` for `"kl"`. A rare token may change its ratio a lot, a common one may not: the
    opposite of a clip.

    The region is anchored to what really sampled: `mu` is `behaviour_log_prob` where given, else `old_log_prob`. It
    weighs each decision by itself, so it takes token ratios, no smoothing and no behaviour correction. "Any other"
    decision exists where decisions are discrete: a density is not a probability, and may be above one, where `D` is not
    defined.

    Example:
        Probability .5 under the sampler, .7 now, threshold .15: masked if good, weighted by 1.4 if bad.

        >>> import torch
        >>> log_prob, sampler_log_prob = torch.full((2, 1), 0.7).log(), torch.full((2, 1), 0.5).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(2, 1, dtype=torch.bool), log_prob, sampler_log_prob, torch.tensor([[1.0], [-1.0]])
        ... )
        >>> Dppo()(log_prob - sampler_log_prob, decisions).alive.tolist()
        [[False], [True]]

    Source: arXiv 2602.04879, section 4; thresholds .15 (tv) and .05 (kl) are its authors' runs', the truncation at 20
    (section 5.4) is verl's.
    """

    scope: ClassVar[str] = "decision"
    uses: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    score_function: ClassVar[bool] = True
    per_decision: ClassVar[str | None] = "probability"
    weighs_behaviour: ClassVar[bool] = True
    discrete_only: ClassVar[str | None] = (
        "a density has none to compare with all other decisions'; write trust.kind = 'clip', or another that reads"
        " ratios"
    )
    kind: Literal["dppo"] = "dppo"
    measure: Literal["tv", "kl"] = "tv"
    threshold: float = Field(default=0.15, gt=0)
    """Largest divergence of a decision that still moves on."""
    maximum: float = Field(default=20.0, ge=1)
    """The largest importance weight."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        acted = decisions.acted
        sampler = acted.old_log_prob if acted.behaviour_log_prob is None else acted.behaviour_log_prob
        live = stop_gradient(decisions.log_prob)
        divergence = (live.exp() - sampler.exp()).abs() if self.measure == "tv" else _binary_kl(sampler, live)
        beyond = divergence > self.threshold
        too_high = beyond & decisions.good & (live > sampler)
        too_low = beyond & decisions.bad & (live < sampler)
        alive = ~(too_high | too_low)
        weight = (live - sampler).clamp(max=math.log(self.maximum)).exp() * alive
        return Surrogate(
            weight * decisions.advantage * decisions.log_prob, alive, clip_shares(too_low, too_high, decisions)
        )


def _binary_kl(log_p: Float[Tensor, "B T"], log_q: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Computes the KL of (p, 1 - p) from (q, 1 - q) for log-probs `ln p`, `ln q`; `1 - p` and `1 - q` are taken to be
    at least 1e-12.
    """
    complement_p, complement_q = (-value.expm1() for value in (log_p, log_q))
    complement_term = (
        complement_p * (complement_p.clamp(min=_DPPO_SMALLEST) / complement_q.clamp(min=_DPPO_SMALLEST)).log()
    )
    return log_p.exp() * (log_p - log_q) + complement_term


_DEAD_BELOW = 0.01


@final
class Gaussian(TrustSlot):
    """`S = sg(phi) rho A` with `phi = exp(-(rho - 1)^2 / (2 sigma^2))`.

    The gate is not differentiated: with it, `d(phi rho) / d rho` changes sign at `rho = (1 + sqrt(1 + 4 sigma^2)) / 2`,
    1.0385 for sigma 0.2, and a bad decision that grew would be *reinforced*. The region is not pessimistic: a bad
    decision at ratio 2 has gate 4e-6 and is silenced, not corrected. Gates below 0.01 count as without gradient in
    `zero_gradient_fraction`.

    Example:
        Gates 1, `exp(-1/2)` one sigma away, 4e-6 at five.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 1.2, 2.0]]).log(), torch.tensor([[1.0, 1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Gaussian()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.0, 0.728, -0.0], [True, True, False])

    Source: innovation 2.4 of source 000.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["gaussian"] = "gaussian"
    sigma: float = Field(default=0.2, gt=0)
    """Width of the gate, in units of the ratio; infinity is no trust region."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        ratio = log_ratio.exp()
        gate = stop_gradient((-0.5 * ((ratio - 1) / self.sigma).square()).exp())
        value = gate * ratio * decisions.advantage
        statistics = {"ptrw/trust_weights_mean": decisions.average(gate), "ptrw/loss_mean": decisions.average(-value)}
        return Surrogate(value, gate >= _DEAD_BELOW, statistics)


@final
class GaussianKl(TrustSlot):
    """`S = M rho A`, where `M` is 0 for a decision that moves on beyond `threshold`: a good one with `rho > 1`, a bad
    one with `rho < 1`, and `KL(old || pi) >= threshold`.

    The divergence is exact and has no noise, where the ratio of one sample has: `|mu - mu_old|^2 / (2 sigma^2)`, in the
    unit of the domain's log-probs (a mean over elements by default). A decision that moves back is always corrected.

    Example:
        A good and a bad decision of ratio 1.5, both beyond the threshold: the bad one moves back and is corrected.

        >>> import torch
        >>> log_ratio = torch.full((2, 1), 1.5).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(2, 1, dtype=torch.bool), log_ratio, torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])
        ... )
        >>> from dataclasses import replace
        >>> GaussianKl()(log_ratio, replace(decisions, old_divergence=torch.full((2, 1), 1e-3))).alive.tolist()
        [[False], [True]]

    Source: Flow-DPPO, arXiv 2606.11025, equations 14 and 18; the threshold of its code, on means over elements.
    """

    scope: ClassVar[str] = "decision"
    reads: ClassVar[frozenset[str]] = frozenset({"old_divergence"})
    kind: Literal["gaussian_kl"] = "gaussian_kl"
    threshold: float = Field(default=1e-5, gt=0)
    """The least divergence, in nats of a decision, at which a decision that moves on is left out."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        assert decisions.old_divergence is not None
        level = stop_gradient(log_ratio)
        beyond = stop_gradient(decisions.old_divergence) >= self.threshold
        too_high = beyond & decisions.good & (level > 0)
        too_low = beyond & decisions.bad & (level < 0)
        alive = ~(too_high | too_low)
        value = log_ratio.exp() * decisions.advantage * as_float(alive, log_ratio.dtype)
        return Surrogate(value, alive, clip_shares(too_low, too_high, decisions))


@final
class Gmpo(TrustSlot):
    """`S = exp((1/n) sum_t d'_t) A`, with `d' = min(d, high)` for `A > 0` and `max(d, -low)` for `A < 0`.

    A one-sided clip of each log-ratio, then the geometric mean: a clipped decision carries no gradient, the others
    share the member's. It takes one advantage a member, token ratios, no smoothing and a uniform credit.

    Source: arXiv 2507.20673, equation 4 and algorithm 1 (bounds `exp(+-0.4)`).
    """

    scope: ClassVar[str] = "member"
    whole_member: ClassVar[bool] = True
    per_decision: ClassVar[str | None] = "log-ratio"
    kind: Literal["gmpo"] = "gmpo"
    low: float = Field(default=0.4, gt=0)
    """Nats that a bad decision's log-prob may fall."""
    high: float = Field(default=0.4, gt=0)
    """Nats that a good decision's log-prob may rise."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        too_high = decisions.good & (log_ratio > self.high)
        too_low = decisions.bad & (log_ratio < -self.low)
        bound = torch.where(too_low, log_ratio.new_full((), -self.low), log_ratio.new_full((), self.high))
        mean = decisions.mean(torch.where(too_high | too_low, bound, log_ratio))
        return Surrogate(
            mean.exp() * decisions.advantage, ~(too_high | too_low), clip_shares(too_low, too_high, decisions)
        )


@final
class KlCov(TrustSlot):
    """`S = rho A`, less `coefficient |lp - lp_old|` at the `max(1, floor(share N))` decisions whose covariance of
    log-prob and advantage is highest.

    `N` counts the valid decisions of the whole update on all processes; where decisions tie for the last places, as
    those of answers that repeat do, the places are drawn by numbers keyed as those of `clip_cov`, so that as many are
    held as are asked for. Where the advantage is 0 the penalty stands alone: a flat group's decision is pulled back to
    where it was sampled. At `lp = lp_old` the penalty has no gradient.

    Source: KL-Cov, arXiv 2505.22617, section 4.2; share and coefficient as in its code (0.002 for its smaller models).
    """

    scope: ClassVar[str] = "batch"
    kind: Literal["kl_cov"] = "kl_cov"
    share: float = Field(default=0.0002, gt=0, le=1)
    """The share of all valid decisions that are held back."""
    coefficient: float = Field(default=1.0, gt=0)

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        spread = covariance(decisions)
        penalised = largest(
            spread, decisions.mask, share_of(self.share, decisions), decisions.reduce, lots=lots_of(decisions)
        )
        value = log_ratio.exp() * decisions.advantage
        # Few decisions are penalised, so the penalty is computed at their places only.
        places = penalised.flatten().nonzero()[:, 0]
        penalty = self.coefficient * decisions.log_ratio.flatten()[places].abs()
        value = value.flatten().index_add(0, places, -penalty).view_as(penalised)
        return Surrogate(value, torch.ones_like(decisions.mask), {"kl_cov/held_mean": decisions.share(penalised)})


@final
class Sapo(TrustSlot):
    """`S = (4 / tau) sigmoid(tau (rho - 1)) A`, with `tau` by the advantage's sign.

    The gradient weight by `rho` is `4 p (1 - p)` with `p = sigmoid(tau (rho - 1))`: one at `rho = 1`, falling smoothly
    to zero on both sides, faster for bad decisions. Weights below 0.01 count as without gradient in
    `zero_gradient_fraction`.

    Example:
        At `rho = 1` the sigmoid is 1/2, so `S = 2 A / tau`: its value is arbitrary up to a constant, its gradient is
        `A`.

    Source: arXiv 2511.20347, section 3.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["sapo"] = "sapo"
    tau_pos: float = Field(default=1.0, gt=0)
    """Temperature for decisions with `A > 0`."""
    tau_neg: float = Field(default=1.05, gt=0)
    """Temperature for the others."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        advantage = decisions.advantage
        tau = torch.where(decisions.good, log_ratio.new_full((), self.tau_pos), log_ratio.new_full((), self.tau_neg))
        gate = torch.sigmoid(tau * (log_ratio.exp() - 1))
        slope = (4 * gate * (1 - gate)).detach()
        return Surrogate(
            4 / tau * gate * advantage, slope >= _DEAD_BELOW, {"sapo/gradient_weight_mean": decisions.average(slope)}
        )


@final
class Topr(TrustSlot):
    """`S = A lp` for `A >= 0`, `S = sg(min(rho, 1)) A lp` for `A < 0`. The paper's `rho` is the member's product
    (`ratio.kind = "product"`).

    No decision loses its gradient, but a bad member that the policy has left is hardly pushed further.

    Example:
        `lp = ln(rho) - 1`: a good decision has weight 1, a bad one `min(rho, 1)`.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[0.5, 0.5, 4.0]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Topr()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.693, 0.847, -0.386], [True, True, True])

    Source: arXiv 2503.14286, equation 9 with `a+ = b+ = 1`, `a- = 0, b- = 1`.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["topr"] = "topr"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        taper = stop_gradient(log_ratio.clamp(max=0).exp())
        weight = torch.where(decisions.bad, taper, torch.ones_like(taper))
        value = weight * decisions.advantage * decisions.log_prob
        return Surrogate(
            value, torch.ones_like(decisions.mask), {"topr/taper_mean": Mean.of(taper, decisions.mask & decisions.bad)}
        )


@final
class Vespo(TrustSlot):
    """`S = sg(phi(w)) A lp`, `phi(w) = exp(lambda + k ln w - lambda w)`, with `(k, lambda)` by the advantage's sign;
    `w` is the member's product.

    `phi(1) = 1`; it falls to zero for small and large `w`. `ln w` is clamped to `+-limit`. Weights below 0.01 count as
    without gradient.

    Example:
        `phi(2) = exp(3 + 2 ln 2 - 6) = 0.199`, times `lp = ln(2) - 1`; at 8 nothing is left.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 2.0, 8.0]]).log(), torch.tensor([[1.0, 1.0, 1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Vespo()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.0, -0.061, 0.0], [True, True, False])

    Source: arXiv 2602.10693, section 3.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["vespo"] = "vespo"
    k_pos: float = Field(default=2.0, gt=0)
    lambda_pos: float = Field(default=3.0, gt=0)
    k_neg: float = Field(default=3.0, gt=0)
    lambda_neg: float = Field(default=2.0, gt=0)
    limit: float = Field(default=20.0, gt=0)
    """Bound on `|ln w|`, in nats."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        good = decisions.advantage >= 0
        k, decay = (
            torch.where(good, log_ratio.new_full((), positive), log_ratio.new_full((), negative))
            for positive, negative in ((self.k_pos, self.k_neg), (self.lambda_pos, self.lambda_neg))
        )
        log_weight = log_ratio.clamp(-self.limit, self.limit)
        gate = stop_gradient((decay + k * log_weight - decay * log_weight.exp()).exp())
        value = gate * decisions.advantage * decisions.log_prob
        return Surrogate(value, gate >= _DEAD_BELOW, {"vespo/weight_mean": decisions.average(gate)})


@final
class CallableTrust(PieceFromPath, TrustSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `TrustSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableTrust(path="groupwise.objective.trust:Gaussian", settings={"sigma": 0.3}).piece
        Gaussian(kind='gaussian', sigma=0.3)
    """

    base: ClassVar[type[TrustSlot]] = TrustSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision", "score_function": True}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return surrogate_problem(result, arguments[0])


Trust = Annotated[
    Unbounded
    | Clip
    | AsymmetricClip
    | DualClip
    | Gaussian
    | GaussianKl
    | Cispo
    | Sapo
    | Topr
    | Dppo
    | Gmpo
    | Vespo
    | Aspo
    | ClipCov
    | KlCov
    | CallableTrust,
    Field(discriminator="kind"),
]
