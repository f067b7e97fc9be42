"""The loss itself: its terms one after the other, on the members of one micro-batch.

    loss = - lambda_pg sum_bt w_bt c_bt k_bt S_bt + beta sum_bt w_bt D_bt - lambda_H sum_bt w_bt H_bt + sum_i lambda_i
    aux_i

Metrics are described here and summed when they are read (`groupwise.statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.aggregate import MemberMean
from groupwise.objective.batch import Plan
from groupwise.objective.decisions import Counts, Decisions, Surrogate, whole_member
from groupwise.objective.trust import Clip, DualClip
from groupwise.records import Loss, Scored, tensors_of
from groupwise.statistics import (
    ABOVE_ZERO,
    AboveZero,
    EffectiveSampleSize,
    Events,
    Mean,
    NotFinite,
    Percentiles,
    Statistic,
    Total,
    as_float,
    logical_and,
)

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


# The original computation of source 000, for honest ablation (`compat = "verl_rl"`): weights inside the ratio, before
# the clip.

_TINY = 1e-8


def incompatible(objective: Objective) -> Iterator[str]:
    """Yields a sentence for each setting that the original code did not have."""
    allowed = {
        "ratio": ("token", "arithmetic"),
        "trust": ("clip", "dual_clip", "gaussian", "asymmetric_clip"),
        "correction": ("none",),
    }
    for slot, kinds in allowed.items():
        kind = getattr(objective, slot).kind
        if kind not in kinds:
            yield (
                f"compat = 'verl_rl' knows {slot}.kind = {', '.join(kinds)}, not {kind!r}; change it, or leave"
                " compat out"
            )
    for link in objective.credit.links():
        if link.kind not in ("temporal_decay", "gradient_adaptive"):
            yield f"compat = 'verl_rl' knows no credit.{link.kind}; leave one of them out"


def compat_weight(objective: Objective, counts: Counts) -> Float[Tensor, "B T"]:
    """Returns `w` of the original: PTRW's loss is the mean over members; elsewhere the configured aggregation with 1e-8
    added to the divisor.
    """
    if objective.trust.kind == "gaussian":
        return MemberMean()(counts)
    weight = objective.aggregation(counts)
    return weight / (1 + _TINY * weight)


def compat_surrogate(objective: Objective, decisions: Decisions) -> Surrogate:
    """Returns `S` of the original: `final = (AMIC's mean of) the smoothed ratio x credit`, then the region.

    PTRW works on the member's mean ratio and mean advantage with its gate differentiated, the asymmetric
    clip works on the mean ratio, picks its width by the mean advantage (zero counts as negative) and has no `min`. The
    original adds 1e-8 to every divisor; so does this, and its values agree to rounding.
    """
    ratio = objective.smoothing(decisions).exp()
    if objective.ratio.kind == "arithmetic":
        ratio = decisions.mean(decisions.masked(ratio)).expand_as(ratio)
    for link in objective.credit.links():
        ratio = ratio * decisions.masked(link(decisions))
    ratio = decisions.masked(ratio)
    trust, advantage = objective.trust, decisions.advantage
    if trust.kind == "gaussian":
        mean_ratio, mean_advantage = _mean(ratio, decisions), _mean(advantage, decisions)
        gate = (-((mean_ratio - 1) ** 2) / (2 * trust.sigma**2)).exp()
        value = (gate * mean_ratio * mean_advantage).expand_as(ratio)
        return Surrogate(value, torch.ones_like(decisions.mask))
    if trust.kind == "asymmetric_clip":
        mean_ratio, mean_advantage = _mean(ratio, decisions), _mean(advantage, decisions)
        width = torch.where(mean_advantage > 0, ratio.new_full((), trust.eps_pos), ratio.new_full((), trust.eps_neg))
        alive = ((mean_ratio >= 1 - width) & (mean_ratio <= 1 + width)).expand_as(decisions.mask)
        return Surrogate(mean_ratio.clamp(1 - width, 1 + width) * advantage, alive)
    assert isinstance(trust, Clip | DualClip)
    bound = trust.bound if trust.kind == "dual_clip" else float("inf")
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - trust.low, 1 + trust.high) * advantage)
    value = (
        torch.where((advantage < 0) & (ratio > bound), bound * advantage, clipped) if bound < float("inf") else clipped
    )
    dead = ((advantage > 0) & (ratio > 1 + trust.high)) | (
        (advantage < 0) & ((ratio < 1 - trust.low) | (ratio > bound))
    )
    return Surrogate(value, ~dead)


def _mean(values: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
    return decisions.masked(values).sum(1, keepdim=True) / (
        decisions.mask.sum(1, keepdim=True).to(values.dtype) + _TINY
    )


# The check of live log-probs: each is finite, and at most 0 unless it is of a density.


def check_log_prob(log_prob: Float[Tensor, "B T"], plan: Plan) -> None:
    """Refuses live log-probs that no policy gives, on a CPU.

    On another device the check would wait for the device: the loss counts such log-probs there, and the error comes
    when they are logged (`statistics.AboveZero`, `statistics.NotFinite`).

    Args:
        log_prob: `[B, T]` nats, detached.
        plan: the plan of the same members.

    Raises:
        ValueError: a log-prob is not finite at a valid decision, unless the plan counts such decisions; or it lies
            above zero and is not of a density.

    Example:
        >>> import torch
        >>> from groupwise import Objective, Rollouts
        >>> objective, old = Objective.preset("dapo"), torch.full((2, 1), -1.0)
        >>> rollouts = Rollouts(torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), old, {"right": [1.0, 0.0]})
        >>> check_log_prob(
        ...     torch.tensor([[-1.0], [-torch.inf]]), objective.plan(objective.prepare(rollouts, objective.init()))
        ... )  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Scored.log_prob[1, 0] is -inf where the mask is true (1 such places; member id 1): ...
    """
    if log_prob.numel() == 0:
        return
    # The usual case takes one pass: the extremes are NaN or infinite where any value is, masked or not.
    lowest, highest = (float(extreme) for extreme in log_prob.aminmax())
    if math.isfinite(lowest) and math.isfinite(highest) and (plan.acted.density or highest <= ABOVE_ZERO):
        return
    finite = log_prob.isfinite()
    broken = logical_and(plan.acted.mask, ~finite)
    if plan.not_finite == "refused" and broken.any():
        member, decision = (int(i) for i in broken.nonzero()[0])
        stable = member if plan.acted.member is None else int(plan.acted.member[member])
        raise ValueError(
            f"Scored.log_prob[{member}, {decision}] is {log_prob[member, decision].item()} where the mask is true"
            f" ({int(broken.sum())} such places; member id {stable}): the model gave no number, or"
            " finds what was sampled impossible. Mask such a decision out, or write objective.plan(...,"
            " not_finite='counted') to leave it out and count it"
        )
    above = logical_and(plan.acted.mask, finite & (log_prob > ABOVE_ZERO))
    if not plan.acted.density and above.any():
        member, decision = (int(i) for i in above.nonzero()[0])
        raise ValueError(
            f"Scored.log_prob[{member}, {decision}] is {log_prob[member, decision].item():.6g}, above zero: a"
            " log-probability is at most 0. Pass log-probs, not probabilities; for densities write Rollouts(...,"
            " density=True)"
        )


_AUXILIARY_NAMES = {"supervised": "sup", "consistency": "cons"}
_DECISION_FIELDS = ("score_norm", "mean_shift", "old_divergence", "positive_error", "negative_error", "entropy")
"""The optional fields of `Scored` that `Decisions` has too."""


def loss_of(objective: Objective, scored: Scored, plan: Plan) -> Loss:
    """Computes the loss of some members, term by term, and their metrics.

    Args:
        objective: a sound objective.
        scored: members under the live policy, with gradient; of the plan's shape.
        plan: of the same members.
    """
    statistics: dict[str, Statistic] = {name: Mean.ratio(value, 1.0) for name, value in plan.constants.items()}
    if plan.not_finite == "counted" or scored.log_prob.device.type != "cpu":
        scored, plan = _without_broken(scored, plan, statistics)
    decisions = _decisions(objective, scored, plan)
    dtype = decisions.log_prob.dtype
    weight = plan.weight.to(dtype)
    # On a CPU `check_log_prob` has refused log-probs above zero.
    if not plan.acted.density and scored.log_prob.device.type != "cpu":
        statistics["log_prob/above_zero"] = AboveZero.of(decisions.log_prob, plan.acted.mask)
    total = decisions.log_prob.new_zeros(())
    if plan.policy_weight != 0:
        term = _policy_term(objective, decisions, weight, plan, statistics)
        statistics["loss_pg"] = Total.of(term)
        total = total + plan.policy_weight * term
    divergence = None if objective.divergence.neutral else _divergence(objective, decisions, scored)
    if divergence is not None:
        statistics["kl"] = decisions.average(divergence)
        if plan.beta != 0:
            term = (weight * divergence).sum()
            statistics["loss_kl"] = Total.of(plan.beta * term)
            total = total + plan.beta * term
    if decisions.entropy is not None:
        statistics["entropy"] = decisions.average(decisions.entropy)
        if plan.entropy != 0:
            total = total - plan.entropy * (weight * decisions.entropy).sum()
    for name in sorted(set(scored.auxiliary) & set(objective.auxiliary) - set(plan.auxiliary)):
        raise ValueError(
            f"Scored.auxiliary[{name!r}] has no divisor; pass Rollouts(..., auxiliary_count={{{name!r}: counts of each"
            " member})"
        )
    for name, coefficient in plan.auxiliary.items():
        if name not in scored.auxiliary:
            raise ValueError(
                f"Scored.auxiliary[{name!r}] is missing, and auxiliary.{name} has a coefficient; it has"
                f" {sorted(scored.auxiliary)}"
            )
        term = coefficient.to(dtype) * torch.where(plan.real, scored.auxiliary[name].to(dtype), 0.0).sum()
        statistics[f"loss_{_AUXILIARY_NAMES.get(name, name)}"] = Total.of(term)
        total = total + term
    statistics["loss"] = Total.of(total)
    return Loss(total, statistics)


def _without_broken(scored: Scored, plan: Plan, statistics: dict[str, Statistic]) -> tuple[Scored, Plan]:
    """Returns the scores and the plan without the decisions whose live log-prob, or a recorded one, is not finite:
    these count as unmoved and get weight 0. Adds their number to the statistics.

    `Rollouts` hold finite numbers, but another trainer records by its own rules: on-policy, the old log-prob is the
    live one, and what the policy finds impossible is -inf in both.
    """
    acted, log_prob = plan.acted, scored.log_prob.detach()
    recorded = {
        name: value
        for name in ("old_log_prob", "behaviour_log_prob", "reference_log_prob")
        if (value := getattr(acted, name)) is not None
    }
    finite = log_prob.isfinite()
    for value in recorded.values():
        finite = logical_and(finite, value.isfinite())
    broken = logical_and(acted.mask, ~finite)
    if broken.device.type == "cpu" and not bool(broken.any()):
        return scored, plan
    statistics["log_prob/not_finite"] = (Events if plan.not_finite == "counted" else NotFinite).of(broken)
    tensors = {
        name: torch.where(broken, 0.0, value) if value.dim() == 2 else value for name, value in scored.tensors().items()
    }
    old = torch.where(logical_and(broken, ~acted.old_log_prob.isfinite()), 0.0, acted.old_log_prob)
    tensors["log_prob"] = torch.where(broken, old.to(scored.log_prob.dtype), scored.log_prob)
    harmless = {name: torch.where(broken, old.to(value.dtype), value) for name, value in recorded.items()}
    correction = None if plan.correction is None else torch.where(broken, 0.0, plan.correction)
    return Scored.from_tensors(tensors), replace(
        plan, acted=replace(acted, **harmless), weight=torch.where(broken, 0.0, plan.weight), correction=correction
    )


def _decisions(objective: Objective, scored: Scored, plan: Plan) -> Decisions:
    dtype = torch.promote_types(scored.log_prob.dtype, torch.float32)
    # All numbers in one dtype, 0 where the mask is false.
    numbers = {name: value for name, value in tensors_of(plan.acted).items() if value.is_floating_point()}
    acted = replace(plan.acted, **{name: plan.acted.masked(value.to(dtype)) for name, value in numbers.items()})
    return Decisions(
        acted=acted,
        log_prob=acted.masked(scored.log_prob.to(dtype)),
        # Advantages are finite at masked places too, so multiplying by the mask is enough.
        advantage=plan.advantage.to(dtype) * as_float(acted.mask, dtype),
        **{
            name: acted.masked(value.to(dtype))
            for name in _DECISION_FIELDS
            if (value := getattr(scored, name)) is not None
        },
        draw=plan.draw,
        member_advantage=plan.advantage if plan.advantage.shape[1] == 1 else None,
        # Scopes below `batch` run once per micro-batch, and processes may have different numbers of these: nothing is
        # reduced.
        reduce=plan.reduce if objective.scope == "batch" else _no_sum,
    )


def _no_sum(tensor: Tensor) -> Tensor:
    raise TypeError(
        "it sums over processes, and its scope is not the whole update; write scope: ClassVar[str] = 'batch'"
    )


def _policy_term(
    objective: Objective,
    decisions: Decisions,
    weight: Float[Tensor, "B T"],
    plan: Plan,
    statistics: dict[str, Statistic],
) -> Float[Tensor, ""]:
    if objective.compat is not None:
        surrogate = compat_surrogate(objective, decisions)
        statistics.update(surrogate.statistics)
        _measure(objective, decisions, decisions.log_ratio, surrogate, [weight], plan.detail, statistics)
        return -(weight * surrogate.value).sum()
    # Most methods take each decision's ratio as it is.
    level = smoothed = decisions.log_ratio
    if not objective.smoothing.neutral:
        level = smoothed = objective.smoothing(decisions)
        statistics.update(objective.smoothing.measure(decisions, smoothed))
    if not objective.ratio.plain:
        level = objective.ratio(smoothed, decisions)
        statistics.update(objective.ratio.measure(level, decisions))
    matching = objective.matching
    surrogate = matching.surrogate(decisions) if matching.has_surrogate else objective.trust(level, decisions)
    factor = weight
    factors = [weight]
    if not objective.credit.uniform:
        link_weights = objective.credit.parts(decisions)
        credit = objective.credit.combine(link_weights, decisions)
        statistics.update(objective.credit.measure(link_weights, decisions))
        factor = factor * credit
        factors.append(credit)
    if plan.correction is not None:
        correction = plan.correction.to(weight.dtype)
        factor = factor * correction
        factors.append(correction)
        statistics["correction/mean"] = decisions.average(correction)
    statistics.update(surrogate.statistics)
    _measure(objective, decisions, level, surrogate, factors, plan.detail, statistics)
    return -(factor * surrogate.value).sum()


def _measure(
    objective: Objective,
    decisions: Decisions,
    level: Float[Tensor, "B T"],
    surrogate: Surrogate,
    factors: list[Tensor],
    detail: bool,
    statistics: dict[str, Statistic],
) -> None:
    """Adds the metrics that every objective has to `statistics`. A term carries gradient where the region is alive and
    every factor positive. The first factor is the weight: it is 0 where the log-prob is not finite, and such a decision
    is reached through no other term either.
    """
    mask, log_ratio, still = decisions.mask, decisions.log_ratio.detach(), decisions.detached()
    alive, direct, log_level = surrogate.alive, surrogate.direct, level.detach()

    @cache
    def dead() -> Bool[Tensor, "B T"]:
        counted = mask
        for factor in factors:
            counted = logical_and(counted, factor > 0)
        return ~logical_and(_reached(objective, alive, direct, counted, still, log_level), factors[0] > 0)

    statistics["zero_gradient_fraction/positive"] = Mean.share(dead, mask, decisions.good)
    statistics["zero_gradient_fraction/negative"] = Mean.share(dead, mask, decisions.bad)
    statistics["on_policy_fraction"] = Mean.share(lambda: log_ratio == 0, mask)
    if detail:
        statistics["ratio"] = Percentiles.of(level, mask)
        statistics["effective_sample_size"] = EffectiveSampleSize.of_logs(level, mask)


def _reached(
    objective: Objective,
    alive: Bool[Tensor, "B T"],
    direct: Bool[Tensor, "B T"] | None,
    counted: Bool[Tensor, "B T"],
    decisions: Decisions,
    log_level: Float[Tensor, "B T"],
) -> Bool[Tensor, "B T"]:
    """Returns the decisions that get a gradient from the policy term. Gradient that a term does not give to its own
    decision reaches others through their shared ratio.

    Args:
        alive, direct: the fields of the region's `Surrogate`.
        counted: `[B, T]` bool, terms that no factor sets to 0.
        decisions: the decisions, without gradient.
        log_level: `log rho`, without gradient.
    """
    if objective.trust.whole_member:
        # There is one surrogate per member, computed from the decisions that are alive in it.
        return logical_and(alive, whole_member(counted, decisions))
    terms = logical_and(alive, counted)
    level_is_constant = objective.compat is None and objective.ratio.constant_level
    if level_is_constant or objective.trust.score_function:
        return terms
    reached = terms if direct is None else logical_and(terms, ~direct)
    if objective.compat is None and not objective.ratio.plain:
        reached = objective.ratio.reach(logical_and(reached, ~objective.ratio.held(log_level)), decisions)
    elif objective.compat is not None and (
        objective.ratio.kind == "arithmetic" or objective.trust.kind in ("gaussian", "asymmetric_clip")
    ):
        reached = whole_member(reached, decisions)
    if not objective.smoothing.neutral:
        reached = objective.smoothing.reach(reached, decisions)
    return reached if direct is None else reached | logical_and(terms, direct)


def _divergence(objective: Objective, decisions: Decisions, scored: Scored) -> Float[Tensor, "B T"] | None:
    if objective.divergence.needs_reference and scored.exact_divergence is None:
        return None
    acted = decisions.acted
    reference = acted.old_log_prob if objective.divergence.against == "behaviour" else acted.reference_log_prob
    if not objective.divergence.needs_reference and reference is None:
        return None
    exact = (
        None
        if scored.exact_divergence is None
        else decisions.masked(scored.exact_divergence.to(decisions.log_prob.dtype))
    )
    return objective.divergence(decisions, acted.old_log_prob if reference is None else reference, exact)
