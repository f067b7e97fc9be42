"""Credit: weights that spread a member's advantage over its decisions. A named chain; an empty one is uniform.

The product of the named credits is renormalised to mean one over each member's valid decisions, unless one of them is
`raw`. Masks leave decisions out and are multiplied last. Credit is detached and is outside the trust region, so it
can never push a decision out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.config import Config, PieceFromPath
from groupwise.objective.decisions import Decisions, largest, stop_gradient
from groupwise.objective.slot import CreditSlot, per_decision_problem, statistics_problem
from groupwise.statistics import Mean, Statistic, Variance, as_float, row_count


@final
class GradientAdaptive(CreditSlot):
    """`c_t = n softmax_t(g_t / T)` over a member's valid decisions, detached; a member of at most one decision has
    credit 1.

    `signal = "surprisal"` is the source's proxy `g = |lp|`, for discrete decisions only: a density's logarithm depends
    on the unit it is measured in, and its size means nothing. `"score_norm"` is exact: the norm of the log-prob's
    gradient by the logits, `sqrt(1 - 2 p_y + sum p^2)`, or by the standardised mean, `|(a - mu) / sigma|`, which
    concentrates near the square root of the dimension, so `temperature` goes with the log-prob's unit. `"auto"` is the
    first where decisions are discrete and the second where they are densities; `Objective.on(density=True)` makes that
    choice, which runs do by themselves.

    Example:
        Log-probs `-ln 1`, `-ln 2`, `-ln 3`: a softmax of their sizes is 1 : 2 : 3.

        >>> import torch
        >>> log_prob = -torch.tensor([[1.0, 2.0, 3.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 3))
        >>> [round(value, 3) for value in GradientAdaptive()(decisions)[0].tolist()]
        [0.5, 1.0, 1.5]

    Source: innovation 2.2 of source 000.
    """

    kind: ClassVar[str] = "gradient_adaptive"
    signal: Literal["auto", "surprisal", "score_norm"] = "auto"
    temperature: float = Field(default=1.0, gt=0)
    """`T`, in the unit of the signal; infinity is uniform."""

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Fields of `Scored` beyond the log-prob."""
        return frozenset({"score_norm"} if self.signal == "score_norm" else ())

    @property
    def discrete_only(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Advice for densities, where the signal cannot serve them; `None` where it can."""
        if self.signal == "score_norm":
            return None
        return "write credit.gradient_adaptive.signal = 'score_norm'" + (
            ", or take objective.on(density=True)" if self.signal == "auto" else ""
        )

    def on(self, *, density: bool) -> GradientAdaptive:
        """Returns the same with `"auto"` decided.

        Args:
            density: whether decisions are densities.

        Example:
            >>> GradientAdaptive().on(density=True).signal, GradientAdaptive(signal="surprisal").on(density=True).signal
            ('score_norm', 'surprisal')
        """
        return self.model_copy(update={"signal": "score_norm"}) if density and self.signal == "auto" else self

    def _signal(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        if self.signal != "score_norm":
            return stop_gradient(decisions.log_prob).abs()
        assert decisions.score_norm is not None
        return stop_gradient(decisions.score_norm)

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        signal = self._signal(decisions) / self.temperature
        share = decisions.masked(signal, fill=torch.finfo(signal.dtype).min).softmax(1)
        # Members without a valid decision have finite shares too.
        return share * (decisions.count * decisions.occupied)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns `gradient_adaptive/avg_gradient_norm` (of the signal) and `gradient_adaptive/weight_variance`."""
        log_prob = decisions.log_prob.detach()
        signal = decisions.score_norm if self.signal == "score_norm" else None
        return {
            "gradient_adaptive/avg_gradient_norm": decisions.average(log_prob.abs if signal is None else signal),
            "gradient_adaptive/weight_variance": Variance.about_one(weight, decisions.mask),
        }


@final
class InverseStep(CreditSlot):
    """`c_t ~ 1 / dt_t` over a member's valid decisions, normalised to mean one, or as it is with `raw`.

    The mean of a denoising transition moves by the model's output times its step `dt`, so does its gradient; divided by
    `dt` all steps push alike. The steps are `Rollouts.step_size`, all positive. A member of one decision has credit 1
    unless `raw`.

    Example:
        `1/dt` is 1, 2, 4, mean 7/3.

        >>> import torch
        >>> zeros, steps = torch.zeros(1, 3), torch.tensor([[1.0, 0.5, 0.25]])
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), zeros, zeros, zeros, step_size=steps)
        >>> [round(value, 3) for value in InverseStep()(decisions)[0].tolist()]
        [0.429, 0.857, 1.714]

    Source: GRPO-Guard, arXiv 2510.22319, equation 12 for Flow-GRPO's noise (`raw`).
    """

    kind: ClassVar[str] = "inverse_step"
    reads: ClassVar[frozenset[str]] = frozenset({"step_size"})
    raw: bool = False
    """Leave the weights unnormalised."""

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True unless `raw`."""
        return not self.raw

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        assert decisions.acted.step_size is not None
        unit_step = torch.ones((), dtype=decisions.acted.step_size.dtype, device=decisions.acted.step_size.device)
        weight = decisions.masked(1 / torch.where(decisions.mask, decisions.acted.step_size, unit_step))
        if self.raw:
            return weight
        mean = decisions.mean(weight)
        return weight / torch.where(mean > 0, mean, torch.ones_like(mean))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns `inverse_step/mean_weight`."""
        return {"inverse_step/mean_weight": decisions.average(weight)}


@final
class LogDecay(CreditSlot):
    """`c_t ~ exp(-a ln(1 + (t-1)/tau) / ln(1 + (n-1)/tau))` over a member's valid decisions, normalised to mean one.

    The last decision weighs `exp(-a)` of the first at every length. A member of one decision has credit 1.

    Example:
        `exp(-ln(1 + (t-1)) / ln 3)` is 1, 0.532, 0.368, normalised to mean one.

        >>> import torch
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3)
        ... )
        >>> [round(value, 3) for value in LogDecay(a=1.0, tau=1.0)(decisions)[0].tolist()]
        [1.579, 0.84, 0.581]

    Source: a variant of innovation 2.5 of source 000.
    """

    kind: ClassVar[str] = "log_decay"
    a: float = Field(default=2.0, ge=0)
    """The fall of the credit from the first decision to the last, in nats."""
    tau: float = Field(default=10.0, gt=0)
    """Positions over which it begins to fall."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        position = decisions.position.to(decisions.log_prob.dtype)
        span = torch.log1p((decisions.count - 1) / self.tau)
        share = torch.log1p(position / self.tau) / torch.where(span > 0, span, torch.ones_like(span))
        weight = decisions.masked((-self.a * share).exp())
        return weight * (decisions.count / weight.sum(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        return {}


@final
class OffPolicyMask(CreditSlot):
    """`c_t = 0` for every decision of a member where `A_t < 0` and `mean_s(lp_behaviour_s - lp_s) > threshold`, and 1
    elsewhere.

    The mean goes over the member's valid decisions, in nats a decision. `lp_behaviour` is what the sampler recorded,
    and `lp_old` where the sampler is the policy itself.

    Example:
        Two bad members: the first fell by 0.5 nats a decision, the second by 0.1.

        >>> import torch
        >>> old, advantage = torch.zeros(2, 2), torch.full((2, 2), -1.0)
        >>> live = torch.tensor([[-0.5, -0.5], [-0.2, 0.0]])
        >>> OffPolicyMask(threshold=0.3)(
        ...     Decisions.of(torch.ones(2, 2, dtype=torch.bool), live, old, advantage)
        ... ).tolist()
        [[0.0, 0.0], [1.0, 1.0]]

    Source: off-policy sequence masking of DeepSeek-V3.2, arXiv 2512.02556.
    """

    kind: ClassVar[str] = "off_policy_mask"
    masks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    threshold: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """The largest mean fall of the log-prob, in nats a decision, at which a bad member still trains."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        recorded = decisions.acted.behaviour_log_prob
        sampled = decisions.acted.old_log_prob if recorded is None else recorded
        fall = decisions.mean(sampled - stop_gradient(decisions.log_prob))
        dropped = decisions.bad & (fall > self.threshold)
        return as_float(decisions.mask & ~dropped, decisions.log_prob.dtype)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the share of valid decisions that the mask drops: `off_policy_mask/dropped_mean`."""
        return {"off_policy_mask/dropped_mean": decisions.share(lambda: torch.eq(weight, 0))}


@final
class TemporalDecay(CreditSlot):
    """`c_t = n gamma^(t-1) / sum_s gamma^(s-1)` over a member's valid decisions; with `raw`, `c_t = gamma^(t-1)` (the
    source's `normalize = false`).

    Example:
        `gamma = 0.5`, three decisions: `gamma^(t-1)` is 1, 1/2, 1/4, mean 7/12, so the credit is 12/7, 6/7, 3/7.

        >>> import torch
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3)
        ... )
        >>> (7 * TemporalDecay(gamma=0.5)(decisions)).round().tolist()
        [[12.0, 6.0, 3.0]]

    Source: innovation 2.5 of source 000. A member of one decision has credit 1.
    """

    kind: ClassVar[str] = "temporal_decay"
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Credit of a decision as a share of the one before it; 1 is uniform."""
    raw: bool = False
    """Leave the weights as they are: their mean is below one."""

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True unless `raw`."""
        return not self.raw

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        power = (decisions.position.to(decisions.log_prob.dtype) * math.log(self.gamma)).exp()
        weight = decisions.masked(power.expand_as(decisions.log_prob))
        return weight if self.raw else weight * (decisions.count / weight.sum(1, keepdim=True).clamp(min=1))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns means over members: `temporal_decay/weight_sum`, `first_weight`, `last_weight`."""
        # The weights fall along a member, so its first is the largest and its last that times a power of gamma.
        first_weight = weight.amax(1, keepdim=True)
        last_weight = first_weight * ((decisions.count - 1) * math.log(self.gamma)).exp()
        return {
            "temporal_decay/weight_sum": Mean.of(weight.sum(1, keepdim=True), decisions.occupied),
            "temporal_decay/first_weight": Mean.of(first_weight, decisions.occupied),
            "temporal_decay/last_weight": Mean.of(last_weight, decisions.occupied),
        }


@final
class TopEntropy(CreditSlot):
    """`c_t = 1` at the decisions whose entropy reaches the `1 - share` quantile of the update, and 0 elsewhere.

    The quantile interpolates linearly between the `N` valid decisions of the whole update on all processes, so that `N
    - ceil((1 - share) (N - 1))` decisions train; those that tie for the last place train too.

    Example:
        >>> import torch
        >>> from dataclasses import replace
        >>> zeros = torch.zeros(1, 5)
        >>> decisions = Decisions.of(torch.ones(1, 5, dtype=torch.bool), zeros, zeros, zeros)
        >>> TopEntropy(share=0.5)(replace(decisions, entropy=torch.tensor([[0.1, 2.0, 0.3, 1.0, 0.2]]))).tolist()
        [[0.0, 1.0, 1.0, 1.0, 0.0]]

    Source: arXiv 2506.01939; the share of its runs is 0.2.
    """

    kind: ClassVar[str] = "top_entropy"
    scope: ClassVar[str] = "batch"
    masks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"entropy"})
    share: float = Field(default=0.2, gt=0, le=1)
    """The share of all valid decisions of an update that train."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        assert decisions.entropy is not None
        entropy = stop_gradient(decisions.entropy)
        count = decisions.reduce(row_count(decisions.mask).sum().double())
        number = count - ((1 - self.share) * (count - 1)).ceil()
        chosen = largest(entropy, decisions.mask, number, decisions.reduce, take_ties=True)
        return as_float(chosen, decisions.log_prob.dtype)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the share of valid decisions that train: `top_entropy/trained_mean`."""
        return {"top_entropy/trained_mean": decisions.share(lambda: torch.gt(weight, 0))}


@final
class CallableCredit(PieceFromPath, CreditSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `CreditSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableCredit(path="groupwise.objective.credit:InverseStep").piece
        InverseStep(raw=False)
    """

    base: ClassVar[type[CreditSlot]] = CreditSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)


@final
class Credit(Config):
    """The chain: `c = n prod_i c_i / sum prod_i c_i` over valid decisions; uniform (all ones) when nothing is named."""

    scope: ClassVar[str] = "member"
    temporal_decay: TemporalDecay | None = None
    log_decay: LogDecay | None = None
    gradient_adaptive: GradientAdaptive | None = None
    inverse_step: InverseStep | None = None
    off_policy_mask: OffPolicyMask | None = None
    top_entropy: TopEntropy | None = None
    callable: CallableCredit | None = None
    """A link of your own."""

    def links(self) -> list[CreditSlot]:
        """Returns the credits of the chain, in order."""
        fields = (getattr(self, name) for name in type(self).model_fields)
        return [credit for credit in fields if credit is not None]

    @cached_property
    def uniform(self) -> bool:
        """True when every decision gets the same credit."""
        return not self.links()

    @property
    def spreads(self) -> bool:
        """True when a credit of the chain weighs decisions against each other; a mask only leaves some out."""
        return not all(credit.masks for credit in self.links())

    @property
    def raw(self) -> bool:
        """True when a credit of the chain asked to be left unnormalised."""
        return not all(credit.normalised for credit in self.links())

    def parts(self, decisions: Decisions) -> list[Float[Tensor, "B T"]]:
        """Returns the credits of the chain by themselves, each `[B, T]`, detached, 0 where the mask is false."""
        return [credit(decisions) for credit in self.links()]

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `c [B, T]`, detached, 0 where the mask is false."""
        return self.combine(self.parts(decisions), decisions)

    def combine(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns the product of the weights: of the spreading ones, renormalised to mean one, times the masks."""
        links = self.links()
        spread = self._spread(
            [weight for link, weight in zip(links, weights, strict=True) if not link.masks], decisions
        )
        for link, weight in zip(links, weights, strict=True):
            if link.masks:
                spread = spread * weight
        return spread

    def _spread(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> Float[Tensor, "B T"]:
        if not weights:
            return as_float(decisions.mask, decisions.log_prob.dtype)
        product = weights[0]
        for weight in weights[1:]:
            product = product * weight
        if len(weights) == 1 or self.raw:
            return product
        total = product.sum(1, keepdim=True)
        scaled = product * (decisions.count / torch.where(total > 0, total, torch.ones_like(total)))
        return torch.where(total > 0, scaled, as_float(decisions.mask, product.dtype))

    def measure(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the metrics of every credit of the chain."""
        links = zip(self.links(), weights, strict=True)
        return {
            name: statistic for credit, weight in links for name, statistic in credit.measure(weight, decisions).items()
        }
