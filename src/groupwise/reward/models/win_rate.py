"""Pairwise preference: the share of its group that a member wins against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

from pydantic import Field

from groupwise.config import ImportPath, user_callable
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.callable import ENTRY_POINTS
from groupwise.reward.error import RewardError
from groupwise.reward.scoring.values import as_number
from groupwise.reward.text import Text, excerpt


@final
class WinRate(Reward):
    """`R_i = 1/(n-1) sum_{j != i} p(i beats j)` over the members of the batch with the same prompt, `p` a judge of two.

    The judge is a function `prefer(prompt, first, second) -> float`, the probability that the first is the better one;
    each pair is asked once, or in both orders where `both_orders` is true (judges tend to favour a place). For a win
    rate under a reward that scores members one by one, no judge is needed: write `advantage.kind = "win_rate"`. A
    member whose prompt nobody shares has no comparison and is missing.

    Example:
        >>> WinRate(function="groupwise.reward.models.win_rate:longer")(["a", "a", "a"], ["x", "xx", "xx"])
        [0.0, 0.75, 0.75]

    Source: Pref-GRPO, arXiv 2508.20751, section 3.
    """

    kind: Literal["win_rate"] = "win_rate"
    function: ImportPath
    """`package.module:function`, or an entry point of the group `groupwise.rewards`."""
    both_orders: bool = False
    """Ask each pair in both orders and take the mean."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the judge, by name."""

    def open(self) -> RewardFunction:
        judge = user_callable(self.function, "function", group=ENTRY_POINTS)

        def score(prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float | None]:
            return self._score(judge, prompts, completions)

        return score

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)

    def _score(self, judge: Any, prompts: Sequence[Text], completions: Sequence[Any]) -> list[float | None]:
        groups: dict[str, list[int]] = {}
        for member, prompt in enumerate(prompts):
            groups.setdefault(repr(prompt), []).append(member)
        won = [0.0] * len(prompts)
        values: list[float | None] = [None] * len(prompts)
        for members in groups.values():
            for place, left_member in enumerate(members):
                for right_member in members[place + 1 :]:
                    chance = self._ask(judge, prompts[left_member], completions[left_member], completions[right_member])
                    if self.both_orders:
                        chance = (
                            chance
                            + 1
                            - self._ask(
                                judge, prompts[left_member], completions[right_member], completions[left_member]
                            )
                        ) / 2
                    won[left_member] += chance
                    won[right_member] += 1 - chance
            for member in members if len(members) > 1 else ():
                values[member] = won[member] / (len(members) - 1)
        return values

    def _ask(self, judge: Any, prompt: Text, first: Any, second: Any) -> float:
        answer = judge(prompt, first, second, **self.arguments)
        try:
            chance = as_number(answer)
        except ValueError as error:
            raise RewardError(
                f"win_rate: {self.function!r} gave {error}; return the probability that the first is better, 0 to 1"
            ) from None
        if chance is None or not 0 <= chance <= 1:
            raise RewardError(
                f"win_rate: {self.function!r} gave {excerpt(repr(answer))}; return the probability that the first is"
                " better, 0 to 1"
            )
        return chance


def longer(prompt: Text, first: Any, second: Any) -> float:
    """Returns 1 where the first completion is longer, 0.5 for equal lengths: the shortest example of a judge of two.

    Example:
        >>> longer("", "ab", "a")
        1.0
    """
    return 0.5 if len(first) == len(second) else float(len(first) > len(second))
