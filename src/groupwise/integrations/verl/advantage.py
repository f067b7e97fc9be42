"""An objective's advantage as an estimator of verl's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from groupwise.integrations.verl.keys import advantage_refusals, disagreements
from groupwise.objective import Objective
from groupwise.objective.admission import Everything
from groupwise.objective.divergence import NoDivergence
from groupwise.records import Rollouts

Estimator = Callable[..., tuple[Tensor, Tensor]]


def advantage_estimator(objective: Objective) -> Estimator:
    """Returns the advantage of an objective with the signature that verl calls: over whole groups of the batch, joined
    by `index` (verl's `uid`).

    A reward is the sum of an answer's token rewards, so a KL in the reward is verl's (`algorithm.use_kl_in_reward`).
    Groups that `admission.kind = "resample"` would not admit are verl's to filter (`algorithm.filter_groups`).
    Advantages and returns are the same numbers, in verl's form `[B, T]`.

    Raises:
        ValueError: the objective needs something that verl cannot give; when called, a key of verl contradicts the
            objective.

    Example:
        >>> from types import SimpleNamespace
        >>> estimate = advantage_estimator(Objective.preset("dr_grpo"))
        >>> algorithm = SimpleNamespace(use_kl_in_reward=False)
        >>> rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> estimate(rewards, torch.ones(2, 2), index=["a", "a"], config=algorithm)[0].tolist()
        [[0.5, 0.5], [-0.5, -0.5]]
    """
    problems = list(advantage_refusals(objective))
    if problems:
        raise ValueError("; ".join(problems))
    # verl computes the divergence and filters groups by itself.
    advantage_objective = objective.model_copy(update={"divergence": NoDivergence(), "admission": Everything()})
    state = advantage_objective.init()

    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        contradictions = list(disagreements(objective, config, "algorithm."))
        if contradictions:
            raise ValueError("; ".join(contradictions))
        if index is None:
            raise ValueError("verl gave no uid to tell groups apart; its data need one (non_tensor_batch['uid'])")
        places = {uid: place for place, uid in enumerate(dict.fromkeys(index))}
        mask = response_mask.bool()
        rollouts = Rollouts(
            group=torch.tensor([places[uid] for uid in index], device=mask.device),
            mask=mask,
            old_log_prob=torch.zeros(mask.shape, device=mask.device),
            rewards={"reward": torch.where(mask, token_level_rewards, 0.0).sum(1)},
        )
        advantage = advantage_objective.prepare(rollouts, state).advantage.to(token_level_rewards.dtype) * response_mask
        return advantage, advantage

    return estimate
