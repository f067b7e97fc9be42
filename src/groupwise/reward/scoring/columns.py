"""Data columns of a reward: the columns that it requires, and the columns that it is called with."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from groupwise.reward.error import RewardError
from groupwise.reward.scoring.trainer_arguments import TRAINER_ARGUMENTS

NOT_COLUMNS = frozenset({"prompts", "completions"}) | TRAINER_ARGUMENTS
"""Arguments of a reward that are no columns of the data."""

_NOT_OF_THE_DATA = {
    "completion_ids": "the token ids of completions, which a language model writes and this domain has not",
    "environments": (
        "TRL's environments, which are not passed here: an environment of domain.environment gives its own reward in"
        " step(), and completions are its whole conversation"
    ),
    "prompt": "a prompt, where a reward is given all of them; write prompts (or each = true for one member a call)",
    "completion": (
        "a completion, where a reward is given all of them; write completions (or each = true for one member a call)"
    ),
}
"""Arguments that no data set could bring, with what they are."""


def needed_columns(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the columns that a reward requires: its `needs`, or its parameters without a default.

    Example:
        >>> def reward(prompts, completions, answer, difficulty=None, **columns): ...
        >>> needed_columns(reward)
        ('answer',)
    """
    declared = getattr(function, "needs", None)
    if declared is not None:
        return tuple(declared)
    named_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in named_kinds and parameter.default is parameter.empty and parameter.name not in NOT_COLUMNS
    )


def arguments_for(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the arguments that the function takes: all of them where it has `**columns`, but never an argument that a
    partial already binds.

    Args:
        available: prompts, completions and data columns by name.

    Returns:
        what it is called with.

    Example:
        >>> arguments_for(lambda completions: completions, {"prompts": [], "completions": ["a"], "answer": [1]})
        {'completions': ['a']}
    """
    parameters = inspect.signature(function).parameters
    bound = function.keywords if isinstance(function, functools.partial) else {}
    available = {name: value for name, value in available.items() if name not in bound}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return available
    return {name: value for name, value in available.items() if name in parameters}


def check_columns(reward: str, needs: Sequence[str], present: Sequence[str]) -> None:
    """Refuses a reward whose column is not in the data.

    Args:
        present: columns of the data.

    Raises:
        RewardError: naming the reward, the column and the columns that exist.

    Example:
        >>> check_columns("exact", ["answer"], ["question"])
        Traceback (most recent call last):
        ...
        groupwise.reward.error.RewardError: reward 'exact' needs the column 'answer', which the data lacks; columns: question
    """  # noqa: E501
    for column in needs:
        if column not in present and column in _NOT_OF_THE_DATA:
            raise RewardError(f"reward {reward!r} reads {column!r}, {_NOT_OF_THE_DATA[column]}", reward=reward)
        if column not in present:
            column_list = ", ".join(sorted(present)) or "none"
            raise RewardError(
                f"reward {reward!r} needs the column {column!r}, which the data lacks; columns: {column_list}",
                reward=reward,
            )


def column_advice(error: str, present: Collection[str]) -> str:
    """Returns the words that follow a `KeyError` of a name that is no column of the data; empty for any other error.

    Args:
        error: the type and the text of the exception.
        present: what the reward could read.

    Example:
        >>> column_advice("KeyError: 'answer'", ["question", "prompts", "completions"])
        "; if 'answer' is a column, the data lacks it; columns: question"
        >>> column_advice("KeyError: 'question'", ["question"])
        ''
    """
    name = re.match(r"KeyError: '([^']+)'", error)
    if name is None or name[1] in present:
        return ""
    column_list = ", ".join(sorted(set(present) - NOT_COLUMNS)) or "none"
    return f"; if {name[1]!r} is a column, the data lacks it; columns: {column_list}"
