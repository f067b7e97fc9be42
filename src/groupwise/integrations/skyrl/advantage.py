"""An objective's advantage as an estimator of SkyRL's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from groupwise.integrations.foreign import group_advantage
from groupwise.integrations.skyrl.keys import advantage_refusals, disagreements
from groupwise.objective import Objective

Estimator = Callable[..., tuple[Tensor, Tensor]]


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
    problems = list(advantage_refusals(objective))
    if problems:
        raise ValueError("; ".join(problems))
    advantage = group_advantage(objective)

    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, index: Any, config: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        if config is not None and (contradictions := list(disagreements(objective, config))):
            raise ValueError("; ".join(contradictions))
        values = advantage(token_level_rewards, response_mask, list(index))
        return values, values

    return estimate
