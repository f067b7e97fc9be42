"""The check of a reward's return value: one finite number or None a member, or an error that names the value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from groupwise.reward.error import RewardError
from groupwise.reward.scoring.table import RewardEvent
from groupwise.reward.text import Text, excerpt, prompt_text
from groupwise.reward.value_with_event import Noted

_ALLOWED = "allowed: a finite number, a bool, or None for a missing reward"


def as_number(value: Any) -> float | None:
    """Converts a value to a float, or to None for None; scalars of numpy and torch count as numbers.

    Raises:
        ValueError: anything else, NaN and infinity included.

    Example:
        >>> as_number(True), as_number(None), as_number(2)
        (1.0, None, 2.0)
        >>> as_number("2")
        Traceback (most recent call last):
        ...
        ValueError: '2' of type str
    """
    if value is None:
        return None
    if not isinstance(value, Real) and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if not isinstance(value, Real):
        raise ValueError(f"{excerpt(repr(value))} of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("a number too large for a float") from None
    if not math.isfinite(number):
        raise ValueError(str(number))
    return number


def split_maps(reward: str, returned: Any) -> tuple[Any, list[Any] | None]:
    """Replaces every map in a reward's return value by its mean. Returns these values and the maps, None where there
    are no maps.

    A map is an array or tensor of two dimensions, one value a pixel.

    Raises:
        RewardError: maps for some members and not for others, of more than two dimensions, or with NaN or infinity;
            names the member.

    Example:
        >>> import numpy
        >>> split_maps("near", [numpy.array([[1.0, 3.0]])])[0]
        [2.0]
    """
    if getattr(returned, "ndim", 1) >= 3:
        returned = list(returned)
    if not isinstance(returned, Sequence) or not any(
        getattr(member_value, "ndim", 0) >= 2 for member_value in returned
    ):
        return returned, None
    import numpy as np

    maps: list[Any] = []
    for member, member_value in enumerate(returned):
        if getattr(member_value, "ndim", 0) > 2:
            description = f"an array of shape {list(member_value.shape)} for member {member}"
            raise RewardError(
                f"reward {reward!r} gave {description}; a map has one value a pixel, [H, W]",
                reward=reward,
                member=member,
            )
        if getattr(member_value, "ndim", 0) != 2:
            description = f"{excerpt(repr(member_value))} for member {member} and maps for others"
            raise RewardError(
                f"reward {reward!r} gave {description}; write a map for every member, or a number for every one",
                reward=reward,
                member=member,
            )
        maps.append(
            np.asarray(
                member_value.detach().cpu() if hasattr(member_value, "detach") else member_value, dtype=np.float64
            )
        )
        if not np.isfinite(maps[-1]).all():
            raise RewardError(
                f"reward {reward!r} gave a map with NaN or infinity for member {member}; {_ALLOWED}",
                reward=reward,
                member=member,
            )
    return [float(pixel_map.mean()) for pixel_map in maps], maps


def checked_values(reward: str, returned: Any, prompts: Sequence[Text]) -> tuple[list[float | None], list[RewardEvent]]:
    """Converts a reward's return value to numbers and events.

    Args:
        returned: what it returned: a sequence, an array or a tensor of one entry a member.
        prompts: the prompts, one a member.

    Returns:
        The numbers, and one event for all plain `None` together and one for each `Noted` entry.

    Raises:
        RewardError: no sequence, another length, or an entry that is no number; names the reward, the prompt, the
            member and the value.
    """
    if hasattr(returned, "tolist"):
        returned = returned.tolist()
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        message = f"reward {reward!r} returned {excerpt(repr(returned))} of type {type(returned).__name__}"
        raise RewardError(f"{message}; write a list with one entry a member", reward=reward)
    if len(returned) != len(prompts):
        message = f"reward {reward!r} returned {len(returned)} values for {len(prompts)} members"
        raise RewardError(f"{message}; write one entry a member, None where there is none", reward=reward)
    values: list[float | None] = []
    events: list[RewardEvent] = []
    silent: list[int] = []
    for member, member_value in enumerate(returned):
        prompt = excerpt(prompt_text(prompts[member]))
        try:
            values.append(as_number(member_value.value if isinstance(member_value, Noted) else member_value))
        except ValueError as error:
            message = f"reward {reward!r} gave {error} for member {member} (prompt: {prompt!r}); {_ALLOWED}"
            raise RewardError(message, reward=reward, prompt=prompt, member=member) from None
        if isinstance(member_value, Noted):
            events.append(
                RewardEvent(
                    member_value.event,
                    reward,
                    prompt=prompt,
                    member=member,
                    detail=member_value.detail,
                    scored=member_value.value is not None,
                )
            )
        elif member_value is None:
            silent.append(member)
    if silent:
        events.append(
            RewardEvent(
                "missing", reward, prompt=excerpt(prompt_text(prompts[silent[0]])), member=silent[0], count=len(silent)
            )
        )
    return values, events
