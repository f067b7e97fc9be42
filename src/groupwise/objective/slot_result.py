"""What a user's piece returned, checked at every call: a wrong type or shape is named by its path, not by the operation
that meets it later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from groupwise.objective.decisions import Surrogate
from groupwise.objective.running import Running
from groupwise.statistics import Statistic


def per_decision_problem(result: Any, mask: Tensor) -> str:
    """Returns what is wrong with numbers `[B, T]` or `[B, 1]`; empty where nothing is.

    Args:
        result: what the piece returned.
        mask: `[B, T]`, the decisions that it was called with.

    Example:
        >>> per_decision_problem(torch.ones(3), torch.ones(2, 3))
        'it returned a tensor of shape [3]; return [B, T] = [2, 3]'
        >>> per_decision_problem(torch.ones(2, 1), torch.ones(2, 3))
        ''
    """
    expected = f"return [B, T] = {list(mask.shape)}"
    if not isinstance(result, Tensor):
        return f"it returned {_described(result)}; {expected}"
    allowed = (mask.shape, (mask.shape[0], 1))
    return "" if result.shape in allowed else f"it returned a tensor of shape {list(result.shape)}; {expected}"


def surrogate_problem(result: Any, mask: Tensor) -> str:
    """Returns what is wrong with the result of a trust region; empty where nothing is.

    Args:
        result: what the piece returned.
        mask: `[B, T]`, the decisions that it was called with.

    Example:
        >>> surrogate_problem(torch.ones(2, 3), torch.ones(2, 3))
        'it returned a Tensor; return groupwise.objective.decisions.Surrogate(value, alive)'
    """
    if not isinstance(result, Surrogate):
        return f"it returned {_described(result)}; return groupwise.objective.decisions.Surrogate(value, alive)"
    if problem := per_decision_problem(result.value, mask):
        return problem
    for name in ("alive", "direct"):
        flags = getattr(result, name)
        if flags is None and name == "direct":
            continue
        if not isinstance(flags, Tensor) or flags.dtype is not torch.bool:
            described = str(flags.dtype) if isinstance(flags, Tensor) else _described(flags)
            return f"{name} of its Surrogate is {described}; give bool [B, T] = {list(mask.shape)}"
        if problem := per_decision_problem(flags, mask):
            return f"{name} of its Surrogate: {problem}"
    return statistics_problem(result.statistics)


def statistics_problem(result: Any) -> str:
    """Returns what is wrong with the metrics of a piece; empty where nothing is.

    Args:
        result: what the piece returned or handed over as its metrics.

    Example:
        >>> statistics_problem({"slope": 0.5})
        "its metric 'slope' is a float; give a groupwise.statistics.Statistic, for example Mean.of(values, mask)"
    """
    if not isinstance(result, Mapping):
        return f"its metrics are {_described(result)}; give a dict of groupwise.statistics.Statistic by name"
    for name, value in result.items():
        if not isinstance(value, Statistic):
            expected = "give a groupwise.statistics.Statistic, for example Mean.of(values, mask)"
            return f"its metric {name!r} is {_described(value)}; {expected}"
    return ""


def advantage_problem(result: Any, rewards: Tensor) -> str:
    """Returns what is wrong with the result of an advantage; empty where nothing is.

    Args:
        result: what the piece returned.
        rewards: `[B, K]`, the rewards that it was called with.

    Example:
        >>> advantage_problem(torch.ones(2, 1), torch.ones(2, 1))
        'it returned a Tensor; return the advantages and the running statistics: (advantage, running)'
    """
    if not (isinstance(result, tuple) and len(result) == 2):
        return (
            f"it returned {_described(result)}; return the advantages and the running statistics: (advantage, running)"
        )
    if not isinstance(result[1], Running):
        return f"its running statistics are {_described(result[1])}; return those that it was given"
    return per_decision_problem(result[0], rewards).replace("[B, T]", "[B, K]")


def admission_problem(result: Any, num_groups: int) -> str:
    """Returns what is wrong with the result of an admission; empty where nothing is.

    Args:
        result: what the piece returned.
        num_groups: the groups that it was called with.

    Example:
        >>> admission_problem(torch.ones(2), 2)
        'it returned torch.float32 [2]; return bool [P] = [2], true for the groups that train'
    """
    expected = f"return bool [P] = [{num_groups}], true for the groups that train"
    if not isinstance(result, Tensor):
        return f"it returned {_described(result)}; {expected}"
    if result.dtype is not torch.bool or list(result.shape) != [num_groups]:
        return f"it returned {result.dtype} {list(result.shape)}; {expected}"
    return ""


def matching_problem(result: Any, num_copies: int, names: Collection[str]) -> str:
    """Returns what is wrong with the result of a matching; empty where nothing is.

    Args:
        result: what the piece returned.
        num_copies: the noised copies that it was called with.
        names: the fields that it has to return.

    Example:
        >>> matching_problem(torch.ones(2), 2, {"log_prob"})
        "it returned a Tensor; return a dict of fields by name, each [N] = [2]: {'log_prob': ...}"
        >>> matching_problem({"log_prob": torch.ones(2, 3)}, 2, {"log_prob"})
        "it returned a tensor of shape [2, 3] as 'log_prob'; return [N] = [2]"
    """
    if not isinstance(result, Mapping):
        fields = ", ".join(f"{name!r}: ..." for name in sorted(names))
        expected = f"return a dict of fields by name, each [N] = [{num_copies}]: {{{fields}}}"
        return f"it returned {_described(result)}; {expected}"
    if missing := sorted(set(names) - set(result)):
        returned = ", ".join(map(repr, result)) or "nothing"
        return f"it returned no {missing[0]!r}, only {returned}; return {missing[0]!r} as well"
    for name, value in result.items():
        expected = f"return [N] = [{num_copies}]"
        if not isinstance(value, Tensor):
            return f"it returned {_described(value)} as {name!r}; {expected}"
        if list(value.shape) != [num_copies]:
            return f"it returned a tensor of shape {list(value.shape)} as {name!r}; {expected}"
    return ""


def _described(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__name__}"
