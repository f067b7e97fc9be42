"""Keys that the user changes for the whole run and a stage overrides: legal, and easily overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.config import states
from groupwise.experiment.schema import Experiment


def stage_overrides(experiment: Experiment, over: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each changed key that a sampling stage overrides, unless the changes set the stage's key
    as well.

    Supervised stages are left out: they usually have values of their own on purpose.

    Args:
        experiment: the experiment with the changes.
        over: the changes, as a person writes them.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> over = {"train": {"max_grad_norm": 0.1}}
        >>> stage_overrides(load_experiment("source_001_progressive", over), over)
        ['train.max_grad_norm: stage full sets its own, which holds there; write stages.full.set.train.max_grad_norm=... as well']
    """  # noqa: E501
    changes = {key: value for key, value in over.items() if key not in ("stages", "controls")}
    sampling = [stage for stage, span in zip(experiment.stages or (), experiment.spans, strict=False) if span.samples]
    sentences: list[str] = []
    for path in _leaves(changes):
        if path[-1] == "kind":
            continue
        key = ".".join(path)
        for stage in sampling:
            if states(stage.set, path) and not states(_inside(over.get("stages"), stage.name), path):
                sentences.append(
                    f"{key}: stage {stage.name} sets its own, which holds there; write"
                    f" stages.{stage.name}.set.{key}=... as well"
                )
    return sentences


def _inside(changed_stages: Any, name: str) -> dict[str, Any]:
    """Returns the keys that the changes set in a stage; the changes hold a table by name or a list of stages."""
    stage_tables = (
        [{"name": key, **stage} for key, stage in changed_stages.items() if stage]
        if isinstance(changed_stages, Mapping)
        else changed_stages or []
    )
    return next((stage.get("set", {}) for stage in stage_tables if stage["name"] == name), {})


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)
