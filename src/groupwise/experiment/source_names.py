"""Source 002's own keys under `train`, read as what they are called here; each conversion is said."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from groupwise.config import ConfigError, Problem, merge
from groupwise.processes import is_first_process
from groupwise.reference.periodic import convert_source_names

log = logging.getLogger("groupwise")

_MIXING = ("reference_model_mixup_alpha", "reference_update_freq")


def in_our_names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A table of an experiment with source 002's keys exchanged for ours: `train.beta`, `epsilon`, `scale_rewards`,
    `use_reference_model`, `reference_model_mixup_alpha` and `reference_update_freq`; the last two under `reference`
    too.

    Args:
        tree: one layer, as a person writes it. A value laid on it later replaces what was said in either name.

    Raises:
        ConfigError: a key stands beside what it is called here, with another value, or has a value that it cannot have.

    Example:
        >>> in_our_names({"train": {"group_size": 4, "epsilon": 0.2}})
        {'train': {'group_size': 4}, 'trust': {'low': 0.2, 'high': 0.2}}
    """
    found = dict(tree)
    if isinstance(train := tree.get("train"), Mapping):
        for name in [each for each in _READ if each in train]:
            ours = _READ[name](_checked(name, train[name]))
            _refuse_both(name, train[name], ours, tree)
            # A slot that is written below `objective` is continued there.
            below = tree.get("objective")
            inside = {table: keys for table, keys in ours.items() if isinstance(below, Mapping) and table in below}
            found = merge(
                found,
                {
                    **{table: keys for table, keys in ours.items() if table not in inside},
                    **({"objective": inside} if inside else {}),
                },
            )
            if name not in _MIXING:
                _say(f"train.{name} = {_written(train[name])} is read as {', '.join(_keys(ours))}")
        if _READ.keys() & train.keys():
            found["train"] = {key: value for key, value in train.items() if key not in _READ}
    if isinstance(reference := found.get("reference"), Mapping) and set(_MIXING) & reference.keys():
        try:
            found["reference"] = convert_source_names(reference)
        except (ValueError, TypeError) as error:
            raise ConfigError(Problem("reference", str(error))) from None
    return found


def _scaled(value: Any) -> dict[str, Any]:
    return {"advantage": {"kind": "per_prompt", "baseline": "group"} if value else {"kind": "centred"}}


def _referred(value: Any) -> dict[str, Any]:
    # Without a reference there is nothing that the exact KL could be to.
    return (
        {"reference": {"kind": "periodic"}}
        if value
        else {"reference": {"kind": "absent"}, "divergence": {"kind": "none"}}
    )


_READ = {
    "beta": lambda value: {"divergence": {"beta": value}},
    "epsilon": lambda value: {"trust": {"low": value, "high": value}},
    "scale_rewards": _scaled,
    "use_reference_model": _referred,
    "reference_model_mixup_alpha": lambda value: {"reference": {"reference_model_mixup_alpha": value}},
    "reference_update_freq": lambda value: {"reference": {"reference_update_freq": value}},
}


def _checked(name: str, value: Any) -> Any:
    wanted = (
        bool
        if name in ("scale_rewards", "use_reference_model")
        else int
        if name == "reference_update_freq"
        else (int, float)
    )
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise ConfigError(
            Problem(f"train.{name} = {value!r}", f"must be {'true or false' if wanted is bool else 'a number'}")
        )
    return value


def _refuse_both(name: str, value: Any, ours: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Refuses what is written in both names with different values, in one layer."""
    for table, keys in ours.items():
        below = tree.get("objective")
        for place in (tree.get(table), below.get(table) if isinstance(below, Mapping) else None):
            for key, own in keys.items():
                if isinstance(place, Mapping) and key in place and place[key] != own:
                    raise ConfigError(
                        Problem(
                            f"train.{name} = {_written(value)}",
                            f"is {table}.{key} here, which is set to {place[key]!r}; keep {table}.{key}",
                        )
                    )


def _keys(tree: Mapping[str, Any]) -> list[str]:
    return [f"{table}.{key} = {_written(value)}" for table, keys in tree.items() for key, value in keys.items()]


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(text: str) -> None:
    if is_first_process():
        log.warning(text)
