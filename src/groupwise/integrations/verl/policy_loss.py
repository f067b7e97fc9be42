"""An objective as a policy loss of verl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from groupwise.integrations.micro_batch import policy_term, step_share
from groupwise.integrations.verl.keys import disagreements, loss_refusals
from groupwise.objective import Objective
from groupwise.statistics import finish

PolicyLoss = Callable[..., tuple[Tensor, dict[str, Any]]]


def policy_loss(objective: Objective) -> PolicyLoss:
    """Returns the policy term of an objective with the signature that verl calls.

    The weights are those of the whole optimiser step: its counts of tokens and answers are in verl's
    `config.global_batch_info`. Where verl gives none, the counts of the micro-batch take their place, as in verl.
    `rollout_is_weights` multiply each token's term, as `k`. The KL term and the entropy bonus are verl's own.

    Raises:
        ValueError: the objective needs something that verl cannot give; at the first call, a key of verl contradicts
            the objective.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> loss = policy_loss(Objective.preset("gspo"))
        >>> actor = SimpleNamespace(
        ...     loss_agg_mode="seq-mean-token-mean", use_kl_loss=False, entropy_coeff=0, global_batch_info={}
        ... )
        >>> live, old = torch.full((2, 2), -1.0, requires_grad=True), torch.full((2, 2), -1.0)
        >>> value, metrics = loss(old, live, torch.tensor([[1.0, 1.0], [-0.5, -0.5]]), torch.ones(2, 2), config=actor)
        >>> round(value.item(), 4)
        -0.25
    """
    problems = list(loss_refusals(objective))
    if problems:
        raise ValueError("; ".join(problems))
    # verl computes the divergence and the entropy bonus by itself.
    share = step_share(policy_term(objective))

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        contradictions = list(disagreements(objective, config, "actor_rollout_ref.actor."))
        if contradictions:
            raise ValueError("; ".join(contradictions))
        batch_info = getattr(config, "global_batch_info", None)
        if batch_info is None:
            raise ValueError(
                f"verl calls the loss with {type(config).__name__}, which has no global_batch_info, as those of verl"
                " 0.9 have; write: pip install verl==0.9.1"
            )
        step_count = batch_info.get(
            "batch_num_tokens" if objective.aggregation.kind == "token_mean" else "global_batch_size"
        )
        result = share(log_prob, old_log_prob, advantages, response_mask, count=step_count, weight=rollout_is_weights)
        # verl averages gradients over its data-parallel processes.
        return result.total * batch_info.get("dp_size", 1), {
            f"actor/{name}": value for name, value in finish(result.statistics).items() if name != "loss"
        }

    return loss
