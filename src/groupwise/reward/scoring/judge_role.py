"""A reward as a judge: measured in evaluation, never trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.scoring.columns import arguments_for, needed_columns


@final
class Judged:
    """A function in the role of a judge; its weight is 0.

    Example:
        >>> judge = Judged(lambda completions: [1.0 for _ in completions])
        >>> judge.role, judge(prompts=["?"], completions=["a"])
        ('judge', [1.0])
    """

    role = "judge"
    weight = 0.0

    def __init__(self, function: RewardFunction) -> None:
        self.function = function
        self.needs = needed_columns(function)
        self.timeout_seconds: float | None = getattr(function, "timeout_seconds", 60.0)
        self.on_error: str = getattr(function, "on_error", "raise")

    def __call__(self, **arguments: Sequence[Any]) -> Any:
        return self.function(**arguments_for(self.function, arguments))


def as_judge(reward: Reward | RewardFunction) -> Reward | Judged:
    """Returns the same reward as a judge: scored only where judges are requested, and excluded from every sum.

    A claim that training helped is worth something when a number that was not the reward went up.

    Example:
        >>> from groupwise.reward import Length, score
        >>> rewards = {
        ...     "brief": Length(target=1),
        ...     "likes a": as_judge(lambda completions: [float("a" in text) for text in completions]),
        ... }
        >>> score(rewards, ["?"], ["a"]).values
        {'brief': [1.0]}
        >>> table = score(rewards, ["?"], ["a"], judges=True)
        >>> table.values["likes a"], table.weights, table.total()
        ([1.0], {'brief': 1.0, 'likes a': 0.0}, [1.0])
    """
    return reward.model_copy(update={"role": "judge"}) if isinstance(reward, Reward) else Judged(reward)


def trained_on(rewards: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the rewards that enter the sum: no judges, and no weight of 0.

    Args:
        rewards: name -> reward.

    Example:
        >>> from groupwise.reward import Length
        >>> trained_on({"brief": Length(), "logged": Length(weight=0.0), "judge": as_judge(Length())})
        ('brief',)
    """
    return tuple(
        name
        for name, reward in rewards.items()
        if getattr(reward, "role", "train") != "judge" and getattr(reward, "weight", 1.0) != 0
    )
