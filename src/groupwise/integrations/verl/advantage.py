"""An objective's advantage as an estimator of verl's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from groupwise.integrations.foreign import group_advantage
from groupwise.integrations.verl.keys import advantage_refusals, disagreements
from groupwise.objective import Objective

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
        >>> import torch
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
    advantage = group_advantage(objective)

    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        contradictions = list(disagreements(objective, config, "algorithm."))
        if contradictions:
            raise ValueError("; ".join(contradictions))
        if index is None:
            raise ValueError("verl gave no uid to tell groups apart; its data need one (non_tensor_batch['uid'])")
        values = advantage(token_level_rewards, response_mask, list(index))
        return values, values

    return estimate
