"""Stepwise credit: a transition is rewarded by what it adds to the reward of the clean image that the model predicts.

    gain_t = R(x0 predicted after transition t) - R(x0 predicted before it)

The gains of a path add up to the reward of its image less that of the first prediction. Source: Savani et al. 2026,
arXiv 2603.28718 (Stepwise-Flow-GRPO).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.reward import RewardError, RewardTable
from groupwise_images.diffusion.sampler import Sampler, Step
from groupwise_images.diffusion.transition import (
    Schedule,
)


def predicted_latents(payload: Mapping[str, Any], schedule: Schedule, sampler: Sampler) -> Tensor:
    """Computes the clean latents that the model predicts before each of `W` decisions, `[B, W, ...]`.

    A transition starts at `x = a x0 + b e` and has the mean `a' x0 + kept e`; both are known, and so `x0` is.

    Args:
        payload: `visited`, `mean` and `first` of the members.
        schedule, sampler: by which the members were drawn.
    """
    mean = payload["mean"]
    index = (int(payload["first"][0]) + torch.arange(mean.shape[1])).to(schedule.time.device)
    step = Step.of(schedule, index)
    kept = sampler(step).kept
    # kept a < b a', for a sampler keeps no more noise than there is after the transition.
    determinant = kept * step.signal - step.noise * step.next_signal
    of_latents, of_mean = (
        (factor / determinant).to(mean).view(1, -1, *[1] * (mean.dim() - 2)) for factor in (kept, -step.noise)
    )
    return of_latents * payload["visited"][:, :-1] + of_mean * mean


def gains(table: RewardTable, num_states: int) -> RewardTable:
    """Turns the rewards of `W + 1` images a member into a map of `W` gains a member.

    Args:
        table: rewards of the predicted images, state by state within a member, the member's own image last.
        num_states: `W + 1`.

    Returns:
        Maps `[W]` a member with their means as values; `logged` has the rewards of the images themselves as
        `NAME/image`.

    Raises:
        RewardError: a reward is missing for a predicted image.

    Example:
        >>> table = gains(RewardTable({"seen": [0.0, 0.5, 0.25]}), 3)
        >>> table.maps["seen"][0].tolist(), table.values["seen"], table.logged["seen/image"]
        ([0.5, -0.25], [0.125], [0.25])
    """
    maps: dict[str, list[Any]] = {}
    logged: dict[str, Sequence[float]] = dict(table.logged)
    for name, values in table.values.items():
        if None in values:
            raise RewardError(
                f"rewards.{name} is missing for an image, and domain.stepwise = true compares the rewards of all images"
                " of a path; let the reward give every image a number, or write domain.stepwise = false"
            )
        by_member = np.asarray(values, dtype=np.float64).reshape(-1, num_states)
        maps[name] = list(np.diff(by_member, axis=1))
        logged[f"{name}/image"] = by_member[:, -1].tolist()
    means = {name: [float(row.mean()) for row in rows] for name, rows in maps.items()}
    bounds = {name: (low - high, high - low) for name, (low, high) in table.bounds.items()}
    contents = table.contents[num_states - 1 :: num_states]
    return replace(
        table, values=means, maps=maps, logged=logged, bounds=bounds, fields={}, extras={}, contents=contents
    )
