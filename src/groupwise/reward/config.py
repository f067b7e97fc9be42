"""The type of a reward in an experiment's configuration: any kind that an installed package registers, the shipped
kinds included.
"""

from typing import Annotated, Any

from groupwise.config import ConfigError, OpenKinds, Problem, check_class
from groupwise.reward.base import Reward


def config_of(kind: str, loaded: Any) -> type[Reward]:
    """Checks that what an entry point names is a reward of that kind.

    Args:
        kind: the entry point's name.
        loaded: a subclass of `Reward` whose key `kind` has this value by default.

    Raises:
        ConfigError: it is no such class.

    Example:
        >>> from groupwise.reward import Length
        >>> config_of("length", Length).__name__
        'Length'
        >>> config_of("short", Length)
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: kind = 'short': Length is a reward of kind 'length'; write kind: Literal['short'] = 'short' in it
    """  # noqa: E501
    place = f"kind = {kind!r}"
    check_class(loaded, Reward, place, name="groupwise.reward.Reward")
    default = loaded.model_fields["kind"].default if "kind" in loaded.model_fields else None
    if default != kind:
        message = f"{loaded.__name__} is a reward of kind {default!r}; write kind: Literal[{kind!r}] = {kind!r} in it"
        raise ConfigError(Problem(place, message))
    return loaded


REWARDS = OpenKinds("groupwise.reward_kinds", config_of)
"""The entry points: `kind = "package.module:Class"`, a subclass of `Reward`."""

RewardConfig = Annotated[Reward, REWARDS]
"""The configuration of any reward, distinguished by `kind`."""
