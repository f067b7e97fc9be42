"""The values that an objective needs in verl's own keys: verl computes the KL term, the entropy bonus, the divisor and
the filter of groups outside the policy loss, by these keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.integrations import foreign
from groupwise.objective import Objective

AGGREGATIONS = {
    "token_mean": "token-mean",
    "member_mean": "seq-mean-token-mean",
    "member_sum": "seq-mean-token-sum",
    "fixed_length": "seq-mean-token-sum-norm",
}
KL_LOSSES = {"k1": ("kl", "k1"), "abs": ("abs",), "k2": ("mse", "k2"), "k3": ("low_var_kl", "k3")}


def keys(objective: Objective) -> dict[str, Any]:
    """Returns verl's keys that go with an objective, beside the two that hold its name.

    Example:
        >>> keys(Objective.preset("grpo"))["actor_rollout_ref.actor.kl_loss_type"]
        'low_var_kl'
    """
    actor, algorithm = "actor_rollout_ref.actor.", "algorithm."
    divergence = objective.divergence
    in_loss = divergence.kind != "none" and divergence.place == "loss"
    in_reward = divergence.kind != "none" and divergence.place == "reward"
    table: dict[str, Any] = {
        f"{actor}loss_agg_mode": AGGREGATIONS[objective.aggregation.kind],
        f"{actor}use_kl_loss": in_loss,
        f"{actor}entropy_coeff": objective.entropy.at(0),
        f"{algorithm}use_kl_in_reward": in_reward,
    }
    if objective.aggregation.kind == "fixed_length":
        table[f"{actor}loss_scale_factor"] = objective.aggregation.length
    if in_loss:
        table |= {f"{actor}kl_loss_type": KL_LOSSES[divergence.kind][0], f"{actor}kl_loss_coef": divergence.beta.at(0)}
    if in_reward:
        table |= {
            f"{algorithm}kl_penalty": "kl",
            f"{algorithm}kl_ctrl.type": "fixed",
            f"{algorithm}kl_ctrl.kl_coef": divergence.beta.at(0),
        }
    if objective.admission.resamples:
        table[f"{algorithm}filter_groups.enable"] = True
    return table


def loss_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and verl does not pass to a policy loss."""
    yield from foreign.loss_refusals(
        objective, "verl", frozenset({"reference_log_prob", "behaviour_log_prob", "reward_history"})
    )
    if objective.aggregation.kind not in AGGREGATIONS:
        allowed = ", ".join(AGGREGATIONS)
        yield (
            f"aggregation.kind = {objective.aggregation.kind!r} needs groups, and verl gives its policy loss none;"
            f" write one of {allowed}"
        )
    if objective.correction.kind != "none":
        yield (
            f"correction.kind = {objective.correction.kind!r} needs the sampler's log-probs, from which verl computes"
            " the weights by itself; write correction.kind = 'none' and algorithm.rollout_correction, whose weights"
            " the loss then takes"
        )
    divergence = objective.divergence
    if (
        divergence.kind != "none"
        and divergence.place == "loss"
        and (divergence.kind not in KL_LOSSES or divergence.against != "reference")
    ):
        yield (
            f"divergence.kind = {divergence.kind!r} against the {divergence.against} has no counterpart in verl, which"
            f" computes the KL term by itself; write divergence.kind as one of {', '.join(KL_LOSSES)}, against the"
            " reference"
        )


def advantage_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the advantage of an objective needs and verl does not pass to an
    estimator.
    """
    yield from foreign.advantage_refusals(objective, "verl")
    if objective.advantage.kind == "per_reward":
        yield (
            "advantage.kind = 'per_reward' needs each reward by itself, and verl gives an estimator their sum; write"
            " register(..., estimator=False) and algorithm.adv_estimator=gdpo of verl's"
        )
    if objective.admission.kind not in ("all", "resample"):
        yield (
            f"admission.kind = {objective.admission.kind!r} leaves groups out of the counts, which an advantage"
            " estimator of verl's cannot; write admission.kind = 'all', or 'resample' with algorithm.filter_groups"
        )


def disagreements(objective: Objective, config: Any, prefix: str) -> Iterator[str]:
    """Yields a sentence for every key of verl's configuration that contradicts the objective.

    Args:
        objective: the registered objective.
        config: verl's actor or algorithm configuration, which `prefix` tells apart.
        prefix: `actor_rollout_ref.actor.` or `algorithm.`.
    """
    synonyms = {"kl_loss_type": KL_LOSSES.get(objective.divergence.kind, ()), "kl_penalty": ("kl", "k1")}
    yield from foreign.disagreements(objective, keys(objective), config, prefix, synonyms)


def overrides(objective: Objective, name: str, estimator: bool = True) -> list[str]:
    """Returns the command-line overrides of verl that go with a registered objective."""
    name_keys = {"actor_rollout_ref.actor.policy_loss.loss_mode": name} | (
        {"algorithm.adv_estimator": name} if estimator else {}
    )
    return [f"{key}={foreign.plain(value)}" for key, value in (name_keys | keys(objective)).items()]
