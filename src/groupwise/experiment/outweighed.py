"""Keys changed for the whole run that a stage sets to its own value: legal, and easily overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.experiment.schema import Experiment


def outweighed(experiment: Experiment, over: Mapping[str, Any]) -> list[str]:
    """One sentence for each changed key that a sampling stage has a value of its own for, unless that one is changed as
    well.

    Supervised stages before usually have theirs, and are meant to.

    Args:
        experiment: with the changes.
        over: the changes, as a person writes them.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> over = {"train": {"max_grad_norm": 0.1}}
        >>> outweighed(load_experiment("source_001_progressive", over), over)
        ['train.max_grad_norm: stage full sets its own, which holds there; write stages.full.set.train.max_grad_norm=... as well']
    """  # noqa: E501
    changes = {key: value for key, value in over.items() if key not in ("stages", "controls")}
    sampling = [stage for stage, span in zip(experiment.stages or (), experiment.spans, strict=False) if span.samples]
    said: list[str] = []
    for path in _leaves(changes):
        if path[-1] == "kind":
            continue
        key = ".".join(path)
        for stage in sampling:
            if _has(stage.set, path) and not _has(_inside(over.get("stages"), stage.name), path):
                said.append(
                    f"{key}: stage {stage.name} sets its own, which holds there; write"
                    f" stages.{stage.name}.set.{key}=... as well"
                )
    return said


def _inside(stages: Any, name: str) -> dict[str, Any]:
    """What the changes themselves set in a stage, which are a table by name or a list of whole stages."""
    listed = (
        [{"name": key, **stage} for key, stage in stages.items() if stage]
        if isinstance(stages, Mapping)
        else stages or []
    )
    return next((stage.get("set", {}) for stage in listed if stage["name"] == name), {})


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _has(tree: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether the table says anything at this place, or one value for all that is below it."""
    here: Any = tree
    for name in path:
        if not isinstance(here, Mapping):
            return True
        if name not in here:
            return False
        here = here[name]
    return True
