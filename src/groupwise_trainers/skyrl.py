"""Objectives inside SkyRL: `register("gspo")` puts the loss and the advantages of one into SkyRL's two registries."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.aggregate import TokenMean
from groupwise.statistics import finish
from groupwise_trainers.foreign import Estimator, Trainer, module_of, named, refuse
from groupwise_trainers.micro_batch import policy_term, step_share

# The values that an objective needs in SkyRL's own keys: SkyRL computes the KL term, the entropy bonus, the divisor
# and the filter of groups outside the policy loss, by these keys.

PREFIX = "trainer.algorithm."
REDUCTIONS = {"token_mean": "token_mean", "member_mean": "sequence_mean", "fixed_length": "seq_mean_token_sum_norm"}
KL_LOSSES = {kind: (kind,) for kind in ("k1", "abs", "k2", "k3")}


def keys(objective: Objective) -> dict[str, Any]:
    """Returns SkyRL's keys that go with an objective, in addition to the two that hold its name.

    Example:
        >>> keys(Objective.preset("grpo"))["trainer.algorithm.loss_reduction"]
        'sequence_mean'
    """
    divergence = objective.divergence
    in_loss = divergence.kind != "none" and divergence.place == "loss"
    entropy = objective.entropy.at(0)
    table: dict[str, Any] = {
        "loss_reduction": REDUCTIONS[objective.aggregation.kind],
        "use_kl_loss": in_loss,
        "use_kl_in_reward": False,
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
    if entropy != 0:
        table["entropy_loss_coef"] = entropy
    if objective.admission.resamples:
        table["dynamic_sampling.type"] = "filter"
    return {f"{PREFIX}{key}": value for key, value in table.items()}


SKYRL = Trainer(
    "SkyRL",
    (f"{PREFIX}policy_loss_type", f"{PREFIX}advantage_estimator"),
    keys,
    REDUCTIONS,
    "folds the weights into the advantages",
    KL_LOSSES,
    admissions=("all", "informative", "resample"),
    admission_advice="admission.kind = 'all', 'informative' (zero_variance_filter) or 'resample' (dynamic_sampling)",
    reward_advice="another advantage.kind",
)


def loss_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and SkyRL does not pass to a policy loss."""
    yield from SKYRL.loss_refusals(objective)
    divergence = objective.divergence
    if divergence.kind != "none" and divergence.place == "loss" and objective.aggregation.kind != "member_mean":
        yield (
            "SkyRL averages the KL term over each answer and then over answers, whatever weighs the policy term; write"
            " aggregation.kind = 'member_mean', or divergence.kind = 'none'"
        )
    if divergence.kind != "none" and divergence.place == "reward":
        yield (
            "SkyRL's KL in the reward enters the token rewards before its advantage estimator and has a controller of"
            " its own; write divergence.place = 'loss' with aggregation.kind = 'member_mean'"
        )


def advantage_estimator(objective: Objective) -> Estimator:
    """Returns the advantage of an objective with the signature that SkyRL calls: over whole groups of the batch, joined
    by `index` (SkyRL's uids).

    Advantages and returns are the same numbers, in SkyRL's form `[B, T]`; SkyRL scales them by its `loss_reduction`
    afterwards.

    Raises:
        ValueError: the objective needs something that SkyRL cannot give; when called, a key of SkyRL contradicts the
            objective.

    Example:
        >>> import torch
        >>> estimate = advantage_estimator(Objective.preset("dr_grpo"))
        >>> rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> estimate(rewards, torch.ones(2, 2), index=["a", "a"])[0].tolist()
        [[0.5, 0.5], [-0.5, -0.5]]
    """
    return SKYRL.advantage_estimator(objective, PREFIX)


PolicyLoss = Callable[..., tuple[Tensor, dict[str, float]]]


def policy_loss(objective: Objective) -> PolicyLoss:
    """Returns the policy term of an objective with the signature that SkyRL calls.

    The advantages of a token arrive multiplied by its weight in the mean over the optimiser step (`loss_reduction`), so
    that the loss is a sum: surrogates are positively homogeneous in the advantage. The correction for another sampler
    is the objective's, from `rollout_logprobs`. The KL term and the entropy bonus are SkyRL's own.

    Raises:
        ValueError: the objective needs something that SkyRL cannot give; at the first call, a key of SkyRL contradicts
            the objective, or no log-probs of the sampler were passed and the objective corrects for it.

    Example:
        >>> loss = policy_loss(Objective.preset("gspo"))
        >>> live, old = torch.full((2, 2), -1.0, requires_grad=True), torch.full((2, 2), -1.0)
        >>> advantages = torch.tensor([[1.0, 1.0], [-0.5, -0.5]]) / 4
        >>> value, metrics = loss(live, old, advantages, None, torch.ones(2, 2))
        >>> round(value.item(), 4)
        -0.25
    """
    refuse(loss_refusals(objective))
    # SkyRL computes the divergence and the entropy bonus by itself, and its advantages hold the weights of the mean.
    summed = policy_term(objective).model_copy(update={"aggregation": TokenMean()})
    corrects, share = objective.correction.kind != "none", step_share(summed)

    def loss(
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        if config is not None:
            SKYRL.check(objective, config, PREFIX)
        if corrects and rollout_logprobs is None:
            raise ValueError(
                f"correction.kind = {objective.correction.kind!r} needs the sampler's log-probs, and SkyRL passed none;"
                " write generator.sampling_params.logprobs=1, or correction.kind = 'none'"
            )
        mask = torch.ones_like(log_probs, dtype=torch.bool) if loss_mask is None else loss_mask.bool()
        result = share(
            log_probs,
            old_log_probs,
            advantages,
            mask,
            count=1.0,
            weight=None if loss_mask is None else loss_mask.double(),
            behaviour_log_prob=rollout_logprobs,
        )
        metrics = finish(result.statistics)
        return result.total, {name: float(value) for name, value in metrics.items() if name != "loss"}

    return loss


# Registering an objective with SkyRL: once, in the program that starts its trainer; SkyRL carries the functions to
# its workers by itself.

_MODULE = "skyrl.backends.skyrl_train.utils.ppo_utils"


def register(
    objective: str | Objective, edits: Mapping[str, Any] | None = None, name: str | None = None, estimator: bool = True
) -> list[str]:
    """Registers an objective as a policy loss and an advantage estimator of SkyRL.

    Args:
        objective: a preset's name, or an `Objective`.
        edits: dotted changes of a preset.
        name: the name in SkyRL; unset takes `groupwise_` and the objective's name.
        estimator: false registers the loss alone, for use with an advantage estimator of SkyRL.

    Returns:
        the overrides for SkyRL's command line.

    Raises:
        ImportError: SkyRL is not installed, or another version of it.
        ValueError: the objective needs something that SkyRL cannot give.
    """
    algorithms = module_of(_MODULE, ("PolicyLossRegistry", "AdvantageEstimatorRegistry"), "skyrl", "skyrl==0.3.0")
    objective, registered_name = named(objective, edits, name)
    functions: dict[Any, Any] = {algorithms.PolicyLossRegistry: policy_loss(objective)}
    if estimator:
        functions[algorithms.AdvantageEstimatorRegistry] = advantage_estimator(objective)
    for registry, function in functions.items():
        # SkyRL refuses to register a name twice, but a notebook registers again on every reload.
        if registered_name in registry.list_available():
            registry.unregister(registered_name)
        registry.register(registered_name, function)
    return SKYRL.overrides(objective, registered_name, estimator)
