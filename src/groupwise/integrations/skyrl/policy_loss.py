"""An objective as a policy loss of SkyRL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from groupwise.integrations.micro_batch import policy_term, step_share
from groupwise.integrations.skyrl.keys import disagreements, loss_refusals
from groupwise.objective import Objective
from groupwise.objective.aggregate import TokenMean
from groupwise.statistics import finish

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
    problems = list(loss_refusals(objective))
    if problems:
        raise ValueError("; ".join(problems))
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
        if config is not None and (contradictions := list(disagreements(objective, config))):
            raise ValueError("; ".join(contradictions))
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
