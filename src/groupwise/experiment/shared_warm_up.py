"""Warm-ups that variants of a comparison share: each is trained once a seed, and the variants start from it.

OUT/warm-up-<hash>/experiment.json  the leading stages that sample nothing
OUT/warm-up-<hash>/seed-<n>/        their run folder
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.domain.settings import DomainConfig
from groupwise.experiment.grids import Cell
from groupwise.experiment.schema import Experiment
from groupwise.experiment.variants import Variant

_TRAIN = {
    *("num_steps", "demonstrations_per_step", "micro_batch_members", "memory_limit_gib", "max_grad_norm"),
    *("weight_average", "autocast", "gradient_checkpointing", "num_threads", "device", "deterministic"),
    *("minibatches", "updates_per_batch", "l2_to_reference", "max_seconds", "callbacks"),
    *("early_stopping", "evaluate_every", "metric", "metric_goal"),
}
"""The keys of `train` that a stage without samples reads."""


def warm_up_of(experiment: Experiment) -> dict[str, Any] | None:
    """Returns the configuration of an experiment's warm-up, its leading stages that sample nothing, as a separate run.

    Returns:
        the table; `None` where the first stage samples, nothing samples, or the experiment starts from a run.
    """
    num_leading = _num_leading(experiment)
    if not num_leading or not experiment.stages or experiment.start is not None:
        return None
    table = experiment.table()
    # Only the comparison's process writes to the terminal. The seed comes from the command of the cell.
    run_settings = {"seed": 0, "track": {**table["track"], "console": "none"}, "controls": {}, "comparison": None}
    return {**table, **run_settings, "stages": table["stages"][:num_leading]}


def reads(experiment: Experiment) -> str:
    """Returns all settings on which the weights after the warm-up depend, as one text: equal texts mean equal warm-ups.

    Of the method, only the auxiliary terms matter in a stage that samples nothing. Of the domain, everything does but
    the keys that it calls `rewarding`, which matter only where evaluations, a callback or a clock may end the stage.
    """
    spans = experiment.spans[: _num_leading(experiment)]
    ends_by_rewards = any(
        span.train.early_stopping is not None or span.train.callbacks or span.train.max_seconds is not None
        for span in spans
    )

    def domain_read(domain: DomainConfig) -> dict[str, Any]:
        return domain.model_dump(mode="json", exclude=None if ends_by_rewards else set(domain.rewarding))

    settings = [
        {
            "name": span.name,
            "domain": domain_read(span.domain),
            "auxiliary": {name: term.model_dump(mode="json") for name, term in span.objective.auxiliary.items()},
            "train": span.train.model_dump(mode="json", include=_TRAIN),
            "optimiser": span.optimiser.model_dump(mode="json"),
        }
        for span in spans
    ]
    return json.dumps([domain_read(experiment.domain), settings], sort_keys=True)


def _num_leading(experiment: Experiment) -> int:
    return next((place for place, span in enumerate(experiment.spans) if span.samples), 0)


def share(out: Path, experiments: Mapping[Variant, Experiment], cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Finds the warm-ups that several variants of a grid share, and writes their configurations. The caller holds
    `grids.grid_lock`.

    Args:
        out: the folder of the grid.
        experiments: each variant's experiment, in the form that its cells run.
        cells: the cells of the grid.

    Returns:
        the cells of the shared warm-ups that are still needed, to be run first; and the cells of the grid, with `start`
            set where their variants share a warm-up.

    Raises:
        ConfigError: the folder cannot be written.
    """
    sharers: dict[str, list[Variant]] = {}
    for variant, experiment in experiments.items():
        if warm_up_of(experiment) is not None:
            sharers.setdefault(reads(experiment), []).append(variant)
    folders: dict[Variant, Path] = {}
    for text, variants in sharers.items():
        if len(variants) < 2:
            continue
        folder = out / f"warm-up-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        folders |= dict.fromkeys(variants, folder)
        try:
            folder.mkdir(exist_ok=True)
            # The table states the method of the first variant, which does not change the weights of the warm-up.
            if not (folder / "experiment.json").is_file():
                table = warm_up_of(experiments[variants[0]])
                (folder / "experiment.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{out} cannot be written ({error.strerror}); give another folder with --out") from None
    started = [
        replace(cell, start=folders[cell.variant] / f"seed-{cell.seed}") if cell.variant in folders else cell
        for cell in cells
    ]
    needed = dict.fromkeys((cell.start, cell.seed) for cell in started if cell.start is not None and not cell.finished)
    warm_ups = [Cell(Variant(("warm-up",)), seed, folder) for folder, seed in needed if folder is not None]
    return warm_ups, started
