"""The values that an objective needs in SkyRL's own keys: SkyRL computes the KL term, the entropy bonus, the divisor
and the filter of groups outside the policy loss, by these keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.integrations import foreign
from groupwise.objective import Objective

PREFIX = "trainer.algorithm."
REDUCTIONS = {"token_mean": "token_mean", "member_mean": "sequence_mean", "fixed_length": "seq_mean_token_sum_norm"}
KL_LOSSES = ("k1", "abs", "k2", "k3")


def keys(objective: Objective) -> dict[str, Any]:
    """Returns SkyRL's keys that go with an objective, beside the two that hold its name.

    Example:
        >>> keys(Objective.preset("grpo"))["trainer.algorithm.loss_reduction"]
        'sequence_mean'
    """
    divergence = objective.divergence
    in_loss = divergence.kind != "none" and divergence.place == "loss"
    in_reward = divergence.kind != "none" and divergence.place == "reward"
    entropy = objective.entropy.at(0)
    table: dict[str, Any] = {
        "loss_reduction": REDUCTIONS[objective.aggregation.kind],
        "use_kl_loss": in_loss,
        "use_kl_in_reward": in_reward,
        "use_entropy_loss": entropy != 0,
        "advantage_batch_normalize": False,
        "zero_variance_filter": objective.admission.kind == "informative",
        "off_policy_correction.tis_ratio_type": None,
        "off_policy_correction.sequence_mask_metric": None,
    }
    if objective.aggregation.kind == "fixed_length":
        table["max_seq_len"] = objective.aggregation.length
    if in_loss:
        table |= {"kl_estimator_type": divergence.kind, "kl_loss_coef": divergence.beta.at(0)}
    if in_reward:
        table |= {"kl_estimator_type": "k1", "kl_ctrl.type": "fixed", "kl_loss_coef": divergence.beta.at(0)}
    if entropy != 0:
        table["entropy_loss_coef"] = entropy
    if objective.admission.resamples:
        table["dynamic_sampling.type"] = "filter"
    return {f"{PREFIX}{key}": value for key, value in table.items()}


def loss_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and SkyRL does not pass to a policy loss."""
    recorded = frozenset({"reference_log_prob", "behaviour_log_prob", "reward_history"})
    yield from foreign.loss_refusals(objective, "SkyRL", recorded)
    if objective.aggregation.kind not in REDUCTIONS:
        yield (
            f"aggregation.kind = {objective.aggregation.kind!r} has no counterpart in SkyRL, which folds the weights"
            f" into the advantages; write one of {', '.join(REDUCTIONS)}"
        )
    divergence = objective.divergence
    if divergence.kind != "none" and divergence.place == "loss":
        if divergence.kind not in KL_LOSSES or divergence.against != "reference":
            yield (
                f"divergence.kind = {divergence.kind!r} against the {divergence.against} has no counterpart in SkyRL,"
                f" which computes the KL term by itself; write divergence.kind as one of"
                f" {', '.join(KL_LOSSES)}, against the reference"
            )
        if objective.aggregation.kind != "member_mean":
            yield (
                "SkyRL averages the KL term over each answer and then over answers, whatever weighs the policy term;"
                " write aggregation.kind = 'member_mean', or divergence.kind = 'none'"
            )
    if divergence.kind != "none" and divergence.place == "reward":
        yield (
            "SkyRL's KL in the reward enters the token rewards before its advantage estimator and has a controller of"
            " its own; write divergence.place = 'loss' with aggregation.kind = 'member_mean'"
        )


def advantage_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the advantage of an objective needs and SkyRL does not pass to an
    estimator.
    """
    yield from foreign.advantage_refusals(objective, "SkyRL")
    if objective.advantage.kind == "per_reward":
        yield (
            "advantage.kind = 'per_reward' needs each reward by itself, and SkyRL gives an estimator their sum; write"
            " another advantage.kind"
        )
    if objective.admission.kind not in ("all", "informative", "resample"):
        yield (
            f"admission.kind = {objective.admission.kind!r} leaves groups out of the counts, which an advantage"
            " estimator of SkyRL's cannot; write admission.kind = 'all', 'informative' (zero_variance_filter) or"
            " 'resample' (dynamic_sampling)"
        )


def disagreements(objective: Objective, config: Any) -> Iterator[str]:
    """Yields a sentence for every key of SkyRL's algorithm configuration that contradicts the objective."""
    yield from foreign.disagreements(objective, keys(objective), config, PREFIX, {})


def overrides(objective: Objective, name: str, estimator: bool = True) -> list[str]:
    """Returns the command-line overrides of SkyRL that go with a registered objective."""
    names = {f"{PREFIX}policy_loss_type": name} | ({f"{PREFIX}advantage_estimator": name} if estimator else {})
    return [f"{key}={foreign.plain(value)}" for key, value in (names | keys(objective)).items()]
