"""The place of an experiment where a reward stands: whatever kind an installed package brings, the shipped ones among
them.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from groupwise.config import OpenKinds
from groupwise.reward.base import Reward


def config_of(kind: str, loaded: Any) -> type[Reward]:
    """Checks that what an entry point names is a reward of that kind.

    Args:
        kind: the entry point's name.
        loaded: a subclass of `Reward` whose key `kind` has this value by default.

    Raises:
        ValueError: it is no such class.

    Example:
        >>> from groupwise.reward import Length
        >>> config_of("length", Length).__name__
        'Length'
        >>> config_of("short", Length)
        Traceback (most recent call last):
        ValueError: kind = 'short': Length is a reward of kind 'length'; write kind: Literal['short'] = 'short' in it
    """
    if not (inspect.isclass(loaded) and issubclass(loaded, Reward)):
        name = getattr(loaded, "__name__", repr(loaded))
        raise ValueError(f"kind = {kind!r}: {name} is no subclass of groupwise.reward.Reward")
    default = loaded.model_fields["kind"].default if "kind" in loaded.model_fields else None
    if default != kind:
        raise ValueError(
            f"kind = {kind!r}: {loaded.__name__} is a reward of kind {default!r};"
            f" write kind: Literal[{kind!r}] = {kind!r} in it"
        )
    return loaded


REWARDS = OpenKinds("groupwise.reward_kinds", config_of)
"""The entry points: `kind = "package.module:Class"`, a subclass of `Reward`."""

RewardConfig = Annotated[Reward, REWARDS]
"""The configuration of any reward, told apart by `kind`."""
