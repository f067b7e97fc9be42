"""Variants: runs of one configuration that differ by their seed, and what one variant's configuration has that
another's has not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from groupwise.config import flatten
from groupwise.runs import Run

_SAME_EXPERIMENT = ("seed", "description", "track.", "controls.", "comparison.", "train.num_threads")
"""Keys in which two runs of one variant may differ."""

MOST_PARTS = 3
"""Settings in the name of a variant."""


@final
@dataclass(frozen=True)
class Variant:
    """Runs of one configuration.

    Args:
        name: what distinguishes it from the others.
        runs: one a seed.

    Example:
        >>> from pathlib import Path
        >>> Variant("grpo", (Run(Path("a"), {"seed": 3}, [], None, [], "unfinished", []),)).seeds
        '3'
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> str:
        """The seeds, for people."""
        return ", ".join("?" if run.seed is None else str(run.seed) for run in self.runs)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the numbers that any of the runs has, in order."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.metrics))

    @property
    def metric(self) -> str | None:
        """The metric of the evaluations that decides, where a summary names it."""
        return next(
            (str(run.summary["metric"]) for run in self.runs if run.summary and run.summary.get("metric")), None
        )

    def series(self, name: str) -> list[tuple[list[int], list[float]]]:
        """Steps and values of one metric, run by run; runs without it are left out.

        Args:
            name: of a metric.
        """
        return [pair for run in self.runs if (pair := run.series(name))[0]]


def group_runs(runs: Sequence[Run]) -> list[Variant]:
    """Runs as variants, in the order of their first runs; each variant's runs by seed.

    What a comparison ran as one variant is one. A run whose configuration is lost is a variant of its own.

    Args:
        runs: any.

    Returns:
        variants with names that differ.

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
        >>> [(each.name, each.seeds) for each in group_runs([run("x", 1, 0.0), run("y", 0, 0.0), run("z", 0, 0.1)])]
        [('divergence.beta=0.0', '0, 1'), ('divergence.beta=0.1', '0')]
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings, compared = _settings(run), _compared(run)
        key = (
            str(compared)
            if compared
            else json.dumps(settings, sort_keys=True, default=str)
            if settings
            else str(run.path)
        )
        groups.setdefault(key, []).append(run)
    found = [tuple(sorted(group, key=lambda run: (run.seed is None, run.seed or 0))) for group in groups.values()]
    return [Variant(name, group) for name, group in zip(_names(found), found, strict=True)]


def differences(variants: Sequence[Variant]) -> dict[str, list[Any]]:
    """Dotted keys in which configurations differ, each with one value a variant; `None` where a variant lacks it.

    Args:
        variants: at least one.

    Returns:
        key -> values, `name` and `method` first, then as the first configuration orders them.

    Example:
        >>> differences([])
        {}
    """
    return _differing([_settings(variant.runs[0]) for variant in variants])


def _settings(run: Run) -> dict[str, Any]:
    return {
        key: value for key, value in flatten(run.config).items() if not key.startswith(_SAME_EXPERIMENT) and value != {}
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
    names = [compared.name if (compared := _compared(group[0])) else "" for group in groups]
    if not all(names) or len(set(names)) < len(names):
        tables = [_settings(group[0]) for group in groups]
        names = [_named(place, tables) or groups[place][0].name for place in range(len(groups))]
    return [name if names.count(name) == 1 else f"{name} ({groups[place][0].path})" for place, name in enumerate(names)]


def _compared(run: Run) -> Path | None:
    """The folder of a comparison's variant that a run lies in; its name is the variant's."""
    folder = run.path.resolve().parent
    return folder if (folder.parent / "comparison.json").is_file() else None


def _named(place: int, tables: Sequence[Mapping[str, Any]]) -> str:
    """What tells a configuration from the others, as a command line would say it: its method, and what it has beside
    others of that method.
    """
    changed = _differing(tables)
    leading = [key for key in ("name", "method") if key in changed]
    alike = [each for each in tables if all(each.get(key) == tables[place].get(key) for key in leading)]
    # A method decides its objective; to repeat that key by key would say nothing.
    rest = [key for key in _differing(alike) if key not in (*leading, "objective.name")]
    parts = [str(tables[place].get(key)) for key in leading] + [
        f"{key.removeprefix('objective.')}={tables[place].get(key)}" for key in rest
    ]
    return ", ".join(parts[:MOST_PARTS]) + (f" and {len(parts) - MOST_PARTS} more" if len(parts) > MOST_PARTS else "")
