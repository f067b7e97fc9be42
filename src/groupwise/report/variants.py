"""Variants: runs of one configuration that differ by their seed, and the keys in which configurations differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from groupwise.config import flatten
from groupwise.runs import Run

_IGNORED_KEYS = ("seed", "description", "track.", "controls.", "comparison.", "train.num_threads")
"""Keys in which two runs of one variant may differ."""

MOST_SETTINGS = 3
"""The largest number of settings in the name of a variant."""


@final
@dataclass(frozen=True)
class Variant:
    """Runs of one configuration.

    Args:
        name: settings that distinguish this variant from the others.
        runs: runs of different seeds, in the order of their seeds.

    Example:
        >>> from pathlib import Path
        >>> Variant("grpo", (Run(Path("a"), {"seed": 3}, [], None, [], "unfinished", []),)).seeds
        '3'
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> str:
        """The seeds as a text."""
        return ", ".join("?" if run.seed is None else str(run.seed) for run in self.runs)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that any of the runs has, in order."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.metrics))

    @property
    def metric(self) -> str | None:
        """The metric of the evaluations that decides: as a summary names it, or of a run that has not ended the one
        that its configuration names, or the first that it measured.
        """
        named = [str(run.summary["metric"]) for run in self.runs if run.summary and run.summary.get("metric")]
        return next((name for name in [*named, *map(_metric_so_far, self.runs)] if name), None)

    def series(self, name: str) -> list[tuple[list[int], list[float]]]:
        """Returns steps and values of the metric `name`, run by run; runs without it are left out."""
        return [pair for run in self.runs if (pair := run.series(name))[0]]


def _metric_so_far(run: Run) -> str | None:
    measured = [name.removeprefix("eval/") for name in run.metrics if name.startswith("eval/")]
    train = run.config.get("train")
    configured = train.get("metric") if isinstance(train, Mapping) else None
    if run.summary is not None or not measured:
        return None
    return configured if configured in measured else measured[0]


def group_runs(runs: Sequence[Run]) -> list[Variant]:
    """Groups runs into variants, in the order of their first runs; the runs of a variant are sorted by seed.

    A variant of a comparison stays one variant. A run whose configuration is lost is a variant by itself.

    Returns:
        variants with distinct names.

    Example:
        >>> from pathlib import Path
        >>> def run(folder, seed, beta):
        ...     return Run(
        ...         Path(folder),
        ...         {"name": "a", "seed": seed, "divergence": {"beta": beta}},
        ...         [],
        ...         None,
        ...         [],
        ...         "unfinished",
        ...         [],
        ...     )
        >>> [
        ...     (variant.name, variant.seeds)
        ...     for variant in group_runs([run("x", 1, 0.0), run("y", 0, 0.0), run("z", 0, 0.1)])
        ... ]
        [('divergence.beta=0.0', '0, 1'), ('divergence.beta=0.1', '0')]
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings, comparison_folder = _settings(run), _comparison_folder(run)
        key = (
            str(comparison_folder)
            if comparison_folder
            else json.dumps(settings, sort_keys=True, default=str)
            if settings
            else str(run.path)
        )
        groups.setdefault(key, []).append(run)
    run_groups = [tuple(sorted(group, key=lambda run: (run.seed is None, run.seed or 0))) for group in groups.values()]
    return [Variant(name, group) for name, group in zip(_names(run_groups), run_groups, strict=True)]


def differences(variants: Sequence[Variant]) -> dict[str, list[Any]]:
    """Returns the dotted keys in which configurations differ, with one value a variant; `None` where a variant lacks
    the key.

    Returns:
        key -> values, `name` and `method` first, then as the first configuration orders them.

    Example:
        >>> differences([])
        {}
    """
    return _differing([_settings(variant.runs[0]) for variant in variants])


def _settings(run: Run) -> dict[str, Any]:
    return {
        key: value for key, value in flatten(run.config).items() if not key.startswith(_IGNORED_KEYS) and value != {}
    }


def _differing(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = sorted(
        dict.fromkeys(key for table in tables for key in table), key=lambda key: key not in ("name", "method")
    )
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
    if len(groups) == 1:
        return [groups[0][0].name]
    names = [folder.name if (folder := _comparison_folder(group[0])) else "" for group in groups]
    if not all(names) or len(set(names)) < len(names):
        tables = [_settings(group[0]) for group in groups]
        names = [_distinguishing_name(index, tables) or groups[index][0].name for index in range(len(groups))]
    return [name if names.count(name) == 1 else f"{name} ({groups[index][0].path})" for index, name in enumerate(names)]


def _comparison_folder(run: Run) -> Path | None:
    """Returns the folder of the comparison's variant that contains a run, whose name is the variant's, or `None`."""
    folder = run.path.resolve().parent
    return folder if (folder.parent / "comparison.json").is_file() else None


def _distinguishing_name(index: int, tables: Sequence[Mapping[str, Any]]) -> str:
    """Returns the settings that distinguish a configuration from the others, in the form of a command line: its method,
    and the settings in which it differs from others of that method.
    """
    changed = _differing(tables)
    leading = [key for key in ("name", "method") if key in changed]
    same_method = [table for table in tables if all(table.get(key) == tables[index].get(key) for key in leading)]
    # The name of the method states its objective, so that keys of the objective's name add nothing.
    setting_keys = [key for key in _differing(same_method) if key not in (*leading, "objective.name")]
    settings = [str(tables[index].get(key)) for key in leading] + [
        f"{key.removeprefix('objective.')}={tables[index].get(key)}" for key in setting_keys
    ]
    return ", ".join(settings[:MOST_SETTINGS]) + (
        f" and {len(settings) - MOST_SETTINGS} more" if len(settings) > MOST_SETTINGS else ""
    )
