"""Real runs to report on, of every domain, each trained in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.domain.language.conftest import tiny_config
from tests.images.diffusion import small as diffusion
from tests.once import once
from tests.selection import tiny as selection
from tests.training.toy import recipe

from groupwise.domain.language.domain import LanguageDomain
from groupwise.runs import Run, read_run
from groupwise.streams import Streams
from groupwise.track import TrackConfig
from groupwise.training.job import Job, Recipe
from groupwise.training.run.launch import train

TRACK = TrackConfig(console="none", rollouts_every=1, num_rollouts=64)


def train_run(
    folder: Path, domain: Callable[[Any], Any], *stages: Recipe, seed: int = 0, name: str = "tiny", **config: Any
) -> Run:
    """A real run; `config` stands in its configuration beside name, method and seed."""
    settings = {
        "name": name,
        "seed": seed,
        "method": stages[-1].objective.name,
        "objective": stages[-1].objective.model_dump(mode="json"),
        **config,
    }
    train(Job(name, seed, stages, domain, settings, track=TRACK), folder)
    return read_run(folder)


def language(
    folder: Path, *, method: str = "grpo", seed: int = 0, steps: int = 3, rewards: Any = None, **objective: Any
) -> Run:
    """Three steps of the cups game, two updates each, so that ratios leave 1."""
    rewards_table = (
        {"rewards": rewards}
        if rewards
        else {"rewards": {"short": {"kind": "soft_overlong", "max_length": 8, "cache_length": 8}}}
    )
    stage = recipe(
        method,
        method,
        rate=0.02,
        objective=objective,
        num_steps=steps,
        updates_per_batch=2,
        prompts_per_step=3,
        evaluate_every=1,
    )
    domain = tiny_config(**rewards_table)
    return train_run(
        folder,
        lambda device: LanguageDomain(domain, streams=Streams(seed)),
        stage,
        seed=seed,
        method=method,
        description="The cups game.",
    )


def compared(factory: pytest.TempPathFactory) -> list[Run]:
    """Two methods with two seeds each, a credit that is not uniform, and two parts of the reward."""
    rewards = {
        "short": {"kind": "soft_overlong", "max_length": 8, "cache_length": 8},
        "correct": {"kind": "exact_answer", "weight": 2.0},
    }
    settings: dict[str, dict[str, Any]] = {"grpo": {}, "temporal_decay": {"credit.temporal_decay.gamma": 0.7}}
    runs = [(method, seed) for method in settings for seed in (0, 1)]

    def fill(folder: Path) -> None:
        for method, seed in runs:
            language(folder / f"{method}-{seed}", method=method, seed=seed, rewards=rewards, **settings[method])

    folder = once(factory, "compared", fill)
    return [read_run(folder / f"{method}-{seed}") for method, seed in runs]


def pictures(folder: Path) -> Run:
    """Two steps of a model that draws."""
    return train_run(
        folder,
        lambda device: diffusion.domain(),
        recipe("draw", "flow_grpo", num_steps=2, prompts_per_step=2),
        name="drawing",
    )


def demonstrations(folder: Path) -> Run:
    """Two steps of a policy that chooses demonstrations."""
    stage = recipe("choose", "grpo", objective={"divergence.kind": "none"}, num_steps=2, prompts_per_step=2)
    return train_run(folder, lambda device: selection.domain_of(), stage, name="choosing")
