"""A warm-up's result kept between runs: the state after a supervised stage, under a hash of everything it depends on,
and of nothing else.

A stage that samples nothing is trained by demonstrations alone. Its method, its rewards, its sampling settings and its
group size are of no account, so another run that differs only in those finds the result of this one. What evaluations
measure depends on the rewards: it is kept under a hash of its own, and measured anew where that has changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from groupwise.checkpoint import (
    Cache,
    StorageError,
    code_version,
    content_key,
    imported_code,
    load_tree,
    named_code,
    save_tree,
)
from groupwise.domain.base import Domain
from groupwise.reward.config import REWARDS
from groupwise.training.distributed import World
from groupwise.training.job import Recipe

# What accumulates and applies the gradient of a supervised term, beside the domain's own code. Slots of the objective
# take no part in it.
_CODE = (
    *(f"training/run/{name}.py" for name in ("loop", "stages", "warm_up")),
    *(f"training/step/{name}.py" for name in ("fitting", "micro_batches", "step", "update")),
    *(f"training/{name}.py" for name in ("distributed", "weight_average")),
    *(f"objective/{name}.py" for name in ("acted", "batch", "loss", "objective", "plan")),
    *("records.py", "schedule", "statistics.py", "streams.py", "learner"),
)
_NOT_THE_DOMAINS = ("objective", "schedule", "training", "experiment", "cli", "config", "checkpoint", "processes.py")

# What such a stage reads of its `train` table. Early stopping looks at the numbers of evaluations, and so at all that
# they depend on.
_TRAIN = {
    *(
        "num_steps",
        "demonstrations_per_step",
        "micro_batch_members",
        "memory_limit_gib",
        "max_grad_norm",
        "weight_average",
        "autocast",
    ),
    *("gradient_checkpointing", "num_threads"),
}


@final
@dataclass(frozen=True)
class WarmUp:
    """A kept warm-up.

    Args:
        record: the state after it.
        rows: of `metrics.jsonl`, up to its end.
        files: the folder with the records of its evaluations.
        measured: `measured_key` of the numbers of its evaluations.
    """

    record: dict[str, Any]
    rows: list[dict[str, Any]]
    files: Path
    measured: str


def warm_up_key(domain: Domain, recipes: Sequence[Recipe], seed: int, device: torch.device, world: World) -> str | None:
    """Hash of what the state after these stages depends on: model and corpus, the stages' own settings, seed, code,
    torch, kind of device, number of processes.

    `None` where a result may not be kept: a stage samples, is not to be kept, or depends on more than its settings (a
    time limit, callbacks).

    Args:
        domain: built, untrained.
        recipes: the stages so far, the one in question last.
        seed: of the run.
        device: where it trains.
        world: its processes; sums over more of them round differently.

    Returns:
        32 hexadecimal digits.
    """
    if any(
        recipe.samples or not recipe.cache or recipe.train.max_seconds or recipe.train.callbacks for recipe in recipes
    ):
        return None
    stages = []
    for recipe in recipes:
        stage: dict[str, Any] = {
            "identity": dict(recipe.identity),
            "supervised": recipe.objective.auxiliary["supervised"].model_dump(mode="json"),
            "train": recipe.train.model_dump(mode="json", include=_TRAIN),
            "optimiser": recipe.optimiser.model_dump(mode="json"),
        }
        if recipe.train.early_stopping is not None:
            stage["stops"] = recipe.train.model_dump(
                mode="json", include={"early_stopping", "evaluate_every", "metric", "metric_goal"}
            )
            stage["measured"] = measured_key(domain, [recipe])
        stages.append(stage)
    return content_key(
        {
            "domain": domain.fingerprint(),
            "stages": stages,
            "seed": seed,
            "code": code_version(*_CODE, *_code_of(domain, "identity", recipes)),
            "named": named_code([stage["identity"] for stage in stages]),
            "torch": torch.__version__,
            "device": device.type,
            "num_processes": world.size,
        }
    )


def measured_key(domain: Domain, recipes: Sequence[Recipe]) -> str:
    """Hash of what the numbers of evaluations of these stages depend on beside the weights: every setting of the
    domain, its rewards, their code.

    Args:
        domain: of the last stage.
        recipes: the stages so far.

    Returns:
        32 hexadecimal digits.
    """
    settings = [dict(recipe.measures) for recipe in recipes]
    every = [recipe.train.evaluate_every for recipe in recipes]
    return content_key(
        {
            "settings": settings,
            "every": every,
            "code": code_version(*_code_of(domain, "measures", recipes)),
            "named": named_code(settings),
        }
    )


def _code_of(domain: Domain, settings: str, recipes: Sequence[Recipe]) -> list[str]:
    """The domain's own code with what it imports; that of rewards only where the settings name some."""
    tables = [getattr(recipe, settings).get("domain", {}) for recipe in recipes]
    reads_rewards = any("rewards" in table for table in tables)
    modules = [type(domain).__module__]
    # The domain names no kind of reward: its class comes in by an entry point.
    for rewards in (table.get("rewards") for table in tables):
        if not isinstance(rewards, Mapping):
            continue
        kinds = {reward["kind"] for reward in rewards.values() if isinstance(reward, Mapping) and "kind" in reward}
        modules += [REWARDS.config(kind).__module__ for kind in sorted(kinds) if REWARDS.can_read(kind)]
    without = _NOT_THE_DOMAINS if reads_rewards else (*_NOT_THE_DOMAINS, "reward")
    return list(dict.fromkeys(file for module in modules for file in imported_code(module, without=without)))


def load_warm_up(key: str, cache: Cache | None = None) -> WarmUp | None:
    """A kept warm-up, or `None`.

    Args:
        key: what `warm_up_key` gave.
        cache: where; unset takes the user's.
    """
    folder = (cache or Cache()).get("warm_up", key)
    if folder is None:
        return None
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return WarmUp(load_tree(folder), rows, folder / "rollouts", (folder / "measured").read_text(encoding="utf-8"))


def keep_warm_up(
    key: str, measured: str, record: dict[str, Any], metrics: Path, rollouts: Path, cache: Cache | None = None
) -> str | None:
    """Keeps a warm-up for later runs; returns what went wrong, which harms nothing but the time of the next run.

    Args:
        key: what `warm_up_key` gave.
        measured: what `measured_key` gave.
        record: the state's.
        metrics: `RUN/metrics.jsonl`.
        rollouts: `RUN/rollouts`.
        cache: where; unset takes the user's.

    Returns:
        a sentence, where it could not be kept.
    """

    def write(folder: Path) -> None:
        save_tree(folder, record)
        shutil.copy(metrics, folder / "metrics.jsonl")
        (folder / "measured").write_text(measured, encoding="utf-8")
        (folder / "rollouts").mkdir()
        # Records of evaluations, and the folders with their pictures.
        for path in rollouts.glob("evaluation-*"):
            _copy(path, folder / "rollouts" / path.name)

    try:
        (cache or Cache()).put("warm_up", key, write)
    except (StorageError, OSError) as error:
        return f"the warm-up could not be kept for later runs: {error}"
    return None


def copy_records(kept: Path, rollouts: Path) -> None:
    """Puts the record files of a kept warm-up into a run's folder.

    Args:
        kept: the folder with them.
        rollouts: `RUN/rollouts`.
    """
    rollouts.mkdir(exist_ok=True)
    for path in kept.iterdir():
        _copy(path, rollouts / path.name)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)
