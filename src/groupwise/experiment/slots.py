"""The objective's slots: at the top of a table that a person writes, below `objective` in the record of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.config import ConfigError, Problem, flatten
from groupwise.objective import Objective

SLOTS = tuple(name for name in Objective.model_fields if name != "name")
"""The keys of the objective, which stand at the top of an experiment."""

Tree = dict[str, Any]


def is_resolved(tree: Mapping[str, Any]) -> bool:
    """Returns whether a table is a run's `config.json`, in which every key is written and the objective has a name.

    Args:
        tree: an experiment's table.

    Example:
        >>> is_resolved({"objective": {"name": "grpo"}}), is_resolved({"method": "grpo"})
        (True, False)
    """
    objective = tree.get("objective")
    return isinstance(objective, Mapping) and "name" in objective


def written(tree: Mapping[str, Any]) -> Tree:
    """Returns a table in the form that a person writes, with the slots at its top and at the top of every `set`.

    Args:
        tree: a table that a person wrote, or a run's `config.json`, whose slots stand below `objective`.

    Raises:
        ConfigError: a person wrote a slot below `objective`, or a kind at the top.

    Example:
        >>> written({"seed": 1, "objective": {"name": "grpo", "entropy": 0.1}})
        {'seed': 1, 'entropy': 0.1}
        >>> written({"objective": {"trust": {"high": 0.3}}})
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: objective.trust.high: a slot stands at the top of an experiment; write trust.high
    """  # noqa: E501
    resolved = is_resolved(tree)

    def at_the_top(table: Mapping[str, Any], place: str) -> Tree:
        if "kind" in table:
            advice = "a kind stands in a table, for example trust.kind; a method is written method = NAME"
            raise ConfigError(Problem(f"{place}kind = {json.dumps(table['kind'])}", f"unknown key; {advice}"))
        slots = table.get("objective")
        if "objective" in table and not (resolved and isinstance(slots, Mapping)):
            key = next(iter(flatten({"objective": slots})))
            short = key.partition(".")[2] or "for example trust.high"
            problem = f"a slot stands at the top of {'a set' if place else 'an experiment'}; write {place}{short}"
            raise ConfigError(Problem(f"{place}{key}", problem))
        other_keys = {key: value for key, value in table.items() if key != "objective"}
        return other_keys | {key: value for key, value in (slots or {}).items() if key != "name"}

    return in_sets(at_the_top(tree, ""), at_the_top)


def in_sets(tree: Mapping[str, Any], change: Callable[[Mapping[str, Any], str], Tree]) -> Tree:
    """Returns the table with the `set` of every stage and control changed.

    Args:
        tree: an experiment's table.
        change: from the table of a `set` and the beginning of its keys, for example `stages.grpo.set.`, to another.

    Example:
        >>> in_sets({"controls": {"a": {"set": {"seed": 1}}}}, lambda table, place: {"place": place})
        {'controls': {'a': {'set': {'place': 'controls.a.set.'}}}}
    """

    def changed(span: Any, place: str) -> Any:
        if isinstance(span, Mapping) and isinstance(span.get("set"), Mapping):
            return {**span, "set": change(span["set"], f"{place}.set.")}
        return span

    tree = dict(tree)
    for key in ("stages", "controls"):
        spans = tree.get(key)
        if isinstance(spans, Mapping):
            tree[key] = {name: changed(span, f"{key}.{name}") for name, span in spans.items()}
        elif isinstance(spans, list | tuple):
            names = [str(span.get("name", "")) if isinstance(span, Mapping) else "" for span in spans]
            tree[key] = [changed(span, f"{key}.{name}") for name, span in zip(names, spans, strict=True)]
    return tree


def below_objective(tree: Mapping[str, Any]) -> Tree:
    """Returns the table with its slots below `objective`, named by the method, as an `Experiment` is validated.

    Args:
        tree: with the slots at its top, every one stated.

    Example:
        >>> below_objective({"seed": 1, "method": "grpo", "entropy": 0.1})
        {'seed': 1, 'method': 'grpo', 'objective': {'name': 'grpo', 'entropy': 0.1}}
    """
    slots = {key: value for key, value in tree.items() if key in SLOTS}
    other_keys = {key: value for key, value in tree.items() if key not in SLOTS}
    return {**other_keys, "objective": {"name": tree["method"], **slots}}


def preset_slots(method: object) -> Tree:
    """Returns every slot of a method.

    Args:
        method: the value behind `method =`.

    Raises:
        ConfigError: no such method.

    Example:
        >>> preset_slots("grpo")["ratio"]["kind"]
        'token'
    """
    if not isinstance(method, str):
        raise ConfigError(Problem(f"method = {method!r}", "must be the name of a preset; see `groupwise methods`"))
    return Objective.preset(method).model_dump(mode="json", exclude={"name"})


def without_preset(tree: Mapping[str, Any]) -> Tree:
    """Returns the table without the slots that its method's preset has too, so that another method may be taken.

    Args:
        tree: with a method and slots at its top.

    Example:
        >>> without_preset({"method": "dapo", **preset_slots("dapo"), "entropy": 0.1})
        {'method': 'dapo', 'entropy': 0.1}
    """
    preset = preset_slots(tree["method"])
    return {key: value for key, value in tree.items() if key not in preset or value != preset[key]}
