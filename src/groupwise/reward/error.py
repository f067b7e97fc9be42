"""The error of a reward that cannot be used. It names the reward, the prompt, the member, the returned value and the
allowed values.
"""

from __future__ import annotations

from typing import final


@final
class RewardError(ValueError):
    """A reward that raised, returned something that is no reward, or lacks what it needs.

    Args:
        message: the whole sentence, already naming reward, value and what is allowed.
        reward: the name of the reward.
        prompt: an excerpt of the prompt, where one member is meant.
        member: the place of the member in the batch, where one is meant.

    Example:
        >>> RewardError("reward 'length': returned nan for member 3", reward="length", member=3).member
        3
    """

    def __init__(
        self, message: str, *, reward: str | None = None, prompt: str | None = None, member: int | None = None
    ) -> None:
        super().__init__(message)
        self.reward, self.prompt, self.member = reward, prompt, member
