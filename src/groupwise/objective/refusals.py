"""Settings that contradict each other, or that would change nothing: refused when the configuration is read, each with
its reason and what to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


def refusals(objective: Objective) -> Iterator[str]:
    """Why this objective is refused, one sentence each; nothing when it is sound.

    Args:
        objective: read, its slots valid one by one.

    Example:
        >>> from groupwise import Objective
        >>> list(refusals(Objective.preset("grpo")))
        []
    """
    ratio, credit, trust = objective.ratio, objective.credit, objective.trust
    sequence_gradient = getattr(ratio, "gradient", "token") == "sequence"
    # A score function times a detached ratio keeps each decision's own gradient at every level.
    score_function = getattr(trust, "score_function", False)
    if not credit.uniform and sequence_gradient and not score_function:
        names = ", ".join(link.kind for link in credit.links())
        yield (
            f"credit ({names}) is ineffective under ratio.kind = {ratio.kind!r} with ratio.gradient = 'sequence': all"
            " decisions of a member share one gradient, so a credit of mean one cancels; write ratio.gradient ="
            " 'token', or leave the credit out"
        )
    if trust.kind == "unbounded" and trust.form == "log_prob" and objective.smoothing.kind != "identity":
        yield (
            f"smoothing.kind = {objective.smoothing.kind!r} is ineffective with trust.form = 'log_prob', which ignores"
            " the ratio; write trust.form = 'ratio', or smoothing.kind = 'identity'"
        )
    if trust.kind == "unbounded" and trust.form == "log_prob" and ratio.kind in ("geometric", "arithmetic"):
        yield (
            f"ratio.kind = {ratio.kind!r} is ineffective with trust.form = 'log_prob', which ignores the ratio; "
            "write trust.form = 'ratio', or ratio.kind = 'token'"
        )
    yield from _trust_refusals(objective)
    divergence = objective.divergence
    if divergence.kind != "none":
        if divergence.place == "reward" and divergence.kind != "k1":
            yield (
                f"divergence.place = 'reward' takes the k1 estimator, and divergence.kind is {divergence.kind!r}; "
                "write divergence.kind = 'k1', or divergence.place = 'loss'"
            )
        if divergence.place == "reward" and objective.advantage.kind == "mean_scaled":
            yield (
                "advantage.kind = 'mean_scaled' takes no negative reward, and divergence.place = 'reward' makes rewards"
                " negative; write divergence.place = 'loss', or advantage.kind = 'centred'"
            )
        if divergence.place == "reward" and divergence.against == "behaviour":
            yield (
                "divergence.against = 'behaviour' is ineffective in the reward, where it is 0; write divergence.against"
                " = 'reference'"
            )
        if divergence.kind == "exact" and divergence.against == "behaviour":
            yield (
                "divergence.kind = 'exact' is measured against the reference; write divergence.against = 'reference',"
                " or another divergence.kind"
            )
        if (lowest := divergence.beta.extremes()[0]) < 0:
            yield f"divergence.beta comes down to {lowest:g}, and a penalty is not negative; write numbers from 0 up"
    coefficients = {
        "entropy": objective.entropy,
        "policy_weight": objective.policy_weight,
        **{f"auxiliary.{name}": schedule for name, schedule in objective.auxiliary.items()},
    }
    for name, schedule in coefficients.items():
        if (lowest := schedule.extremes()[0]) < 0:
            yield f"{name} comes down to {lowest:g}, and below 0 the term would be unlearned; write numbers from 0 up"
    if objective.compat is not None:
        from groupwise.objective.compat import incompatible

        yield from incompatible(objective)


def _trust_refusals(objective: Objective) -> Iterator[str]:
    trust, ratio, smoothing = objective.trust, objective.ratio, objective.smoothing
    reads = {"gmpo": "log-ratio", "dppo": "probability"}.get(trust.kind)
    if reads is not None and smoothing.kind != "identity":
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {reads}, which smoothing.kind = {smoothing.kind!r}"
            " would replace; write smoothing.kind = 'identity'"
        )
    if reads is not None and ratio.kind != "token":
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {reads}, and ratio.kind is {ratio.kind!r}; write"
            " ratio.kind = 'token'"
        )
    if trust.kind == "gmpo" and not objective.credit.uniform:
        yield (
            "credit is ineffective under trust.kind = 'gmpo': all decisions of a member share one gradient, so a credit"
            " of mean one cancels; leave the credit out"
        )
    if trust.kind == "dppo" and objective.correction.kind != "none":
        yield (
            "trust.kind = 'dppo' weighs by the sampler's own probabilities, so correction.kind ="
            f" {objective.correction.kind!r} would count the mismatch twice; write correction.kind = 'none'"
        )
    if ratio.kind == "transition" and smoothing.kind != "identity":
        yield (
            f"smoothing.kind = {smoothing.kind!r} is ineffective under ratio.kind = 'transition', which does not read"
            " log-ratios; write smoothing.kind = 'identity'"
        )


def warnings(objective: Objective, updates_per_batch: int, chosen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Legal settings that are rarely meant, one sentence each. Said once, at the start of a run.

    Args:
        objective: a sound objective.
        updates_per_batch: optimiser steps on each batch of rollouts.
        chosen: dotted keys that the user set by hand.
    """
    if updates_per_batch == 1 and any(key.startswith("objective.trust.") for key in chosen):
        yield (
            f"trust.kind = {objective.trust.kind!r} was set, but every batch of rollouts gets one update, on-policy:"
            " the ratio is always 1 and no trust region can act; set train.updates_per_batch above 1 to see it"
        )
    if objective.advantage.kind == "rank":
        yield "advantage.kind = 'rank' discards the size of differences between rewards"
    divergence = objective.divergence
    if divergence.kind == "k1" and divergence.place == "loss":
        against = divergence.against
        yield (
            f"divergence.kind = 'k1' in the loss against the {against} policy: its mean gradient on-policy is exactly"
            " 0, so it only adds variance; write divergence.kind = 'k3_unbiased', or divergence.place = 'reward'"
        )
    if getattr(objective.advantage, "baseline", None) == "running":
        yield "advantage.baseline = 'running' replaces the comparison inside a group by the difficulty of its prompt"
