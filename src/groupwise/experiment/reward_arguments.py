"""The argument `rewards` of `groupwise.train`: functions and configured rewards, with names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.experiment.python_objects import Arguments, type_name
from groupwise.reward import Reward

_WRITE_REWARD = "write def reward(completions, **columns): return [...], one number a completion"
ATTRIBUTES = ("weight", "timeout_seconds", "on_error", "role", "bounds", "completions")
"""Attributes of a function that hold for it as a reward."""
_ONE_A_MEMBER = frozenset({"prompts", "completions", "completion_ids"})


def read_rewards(arguments: Arguments, rewards: Any, columns: frozenset[str] | None) -> dict[str, dict[str, Any]]:
    """Returns the table of each reward by its name.

    Args:
        arguments: the record to which the objects are added.
        rewards: a function or configured reward, a list of them, or a dict by name.
        columns: the columns of the data, where they are known.

    Raises:
        ConfigError: there is no reward, or one cannot be called as rewards are.
    """
    if isinstance(rewards, Mapping):
        pairs = [(name, reward) for name, reward in rewards.items()]
    elif isinstance(rewards, Sequence) and not isinstance(rewards, str):
        pairs = list(numbered(rewards))
    else:
        pairs = list(numbered([rewards]))
    if not pairs:
        raise ConfigError("rewards: none was given; give a function, a list of functions, or a dict name -> function")
    tables: dict[str, dict[str, Any]] = {}
    for name, reward in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"rewards: the name {name!r} is of type {type_name(name)}; a reward's name is a text")
        tables[name] = _reward(arguments, name, reward, columns)
    return tables


def numbered(rewards: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, reward): a function's name or the kind of a configured reward, numbered where it repeats."""
    used: dict[str, int] = {}
    for reward in rewards:
        name = getattr(reward, "kind", None) if isinstance(reward, Reward) else getattr(reward, "__name__", None)
        if not isinstance(name, str) or not name.isidentifier():
            name = "reward"
        used[name] = used.get(name, 0) + 1
        yield (name if used[name] == 1 else f"{name}_{used[name]}"), reward


def _reward(arguments: Arguments, name: str, reward: Any, columns: frozenset[str] | None) -> dict[str, Any]:
    from groupwise.reward.config import REWARDS

    argument = f"rewards[{name!r}]"
    if isinstance(reward, Reward) and getattr(reward, "kind", None) in REWARDS.names():
        return reward.model_dump(mode="json")
    if isinstance(reward, str) and ":" in reward:
        return {"kind": "callable", "path": reward}
    if isinstance(reward, str) and Path(reward).is_dir():
        return {"kind": "reward_model", "path": reward}
    if isinstance(reward, str):
        raise ConfigError(
            f"{argument}: {reward!r:.200} is no function; a reward model is written as"
            f" groupwise.reward.RewardModel(path={reward!r:.200}), a function of a module as 'package.module:name'"
        )
    if _is_model(reward):
        raise ConfigError(
            f"{argument}: a model of type {type_name(reward)} was given; write the folder that it is saved in, as"
            " groupwise.reward.RewardModel(path=FOLDER)"
        )
    if not callable(reward):
        raise ConfigError(
            f"{argument}: an object of type {type_name(reward)} was given; allowed: a function, an object that can be"
            f" called, a configured reward of groupwise.reward; {_WRITE_REWARD}"
        )
    if not isinstance(reward, Reward):
        _check_signature(argument, reward, columns)
    place = re.sub(r"\W", "_", f"rewards_{name}")
    while place in arguments.objects:
        place += "_"
    table: dict[str, Any] = {"kind": "callable", "path": str(arguments.refer(place, reward, argument))}
    for key in ATTRIBUTES:
        value = getattr(reward, key, None)
        if value is not None and not callable(value):
            table[key] = list(value) if isinstance(value, tuple) else value
    return table


def _is_model(reward: Any) -> bool:
    """Returns whether an object is a model of transformers, as TRL takes for a reward."""
    return callable(getattr(reward, "save_pretrained", None)) and callable(getattr(reward, "forward", None))


def _check_signature(argument: str, reward: Callable[..., Any], columns: frozenset[str] | None) -> None:
    """Refuses a reward that cannot be called with keyword arguments."""
    try:
        parameters = list(inspect.signature(reward).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(
            f"{argument}: the parameters of {reward!r} are not known to Python, and a reward is given what it has"
            f" parameters for; {_WRITE_REWARD}"
        ) from None
    if inspect.isclass(reward):
        return
    name = getattr(reward, "__name__", type(reward).__name__)
    signature = f"{name}{inspect.signature(reward)}"[:200]
    if any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters):
        raise ConfigError(
            f"{argument}: {signature} has a parameter without a name, and a reward is called by names; {_WRITE_REWARD}"
        )
    parameter_names = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    if (
        not open_ended
        and not parameter_names & _ONE_A_MEMBER
        and (not parameter_names or (columns is not None and not parameter_names <= columns))
    ):
        raise ConfigError(
            f"{argument}: {signature} takes none of prompts, completions and completion_ids, and a reward is called as"
            f" reward(prompts=..., completions=..., COLUMN=...); {_WRITE_REWARD}"
        )


def columns_of(data: Any) -> frozenset[str] | None:
    """Returns the columns of rows, with those that a domain adds, as far as they are known without reading a stream."""
    names = getattr(data, "column_names", None)
    if names is None and isinstance(data, list) and data and isinstance(data[0], dict):
        names = list(data[0])
    if not isinstance(names, list):
        return None
    return frozenset(map(str, names)) | {"num_tokens", "truncated", "answer", "prompt"}
