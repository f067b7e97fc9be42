"""A kept warm-up is found by every run whose supervised stages are the same, and by no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.domain.base import Domain
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import job_of
from groupwise.streams import seed_everything
from groupwise.track import TrackConfig, depends_on_machine, read_metrics
from groupwise.training import Job, train
from groupwise.training.distributed import World
from groupwise.training.run import warm_up
from groupwise.training.run.warm_up import measured_key, warm_up_key

TINY = [
    "domain.model.shape.hidden_size=8",
    "domain.model.shape.num_layers=1",
    "domain.model.shape.num_heads=1",
    "domain.model.shape.num_key_value_heads=1",
    "domain.model.shape.intermediate_size=8",
    "domain.data.num_train=8",
    "domain.data.num_held_out=2",
    "domain.demonstrations.num=8",
    "stages.warm_up.num_steps=2",
]


def tiny(*overrides: str) -> tuple[Job, Domain]:
    chosen = job_of(load_experiment("language", [*TINY, *overrides]))
    seed_everything(chosen.seed)
    return chosen, chosen.build_domain(torch.device("cpu"))


def keys(*overrides: str, size: int = 1) -> tuple[str, str]:
    chosen, domain = tiny(*overrides)
    first = chosen.recipes[:1]
    return warm_up_key(domain, first, chosen.seed, torch.device("cpu"), World(0, size)), measured_key(domain, first)


@pytest.fixture(scope="module")
def plain() -> tuple[str, str]:
    return keys()


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=gspo"],
        ["trust.high=0.28", "divergence.kind=k3", "divergence.beta=0.1"],
        ["train.group_size=4", "train.prompts_per_step=2", "train.updates_per_batch=2"],
        ["train.patience=3"],
        ["stages.grpo.num_steps=3", "stages.grpo.set.optimiser.learning_rate=0.5"],
    ],
    ids=" ".join,
)
def test_the_method_and_how_much_is_sampled_are_of_no_account(plain: tuple[str, str], overrides: list[str]) -> None:
    assert keys(*overrides) == plain


@pytest.mark.parametrize(
    "overrides",
    [
        ["domain.rewards.brief.kind=length", "domain.rewards.brief.target=3"],
        ["domain.sampling.temperature=0.7"],
        ["domain.evaluation.num_texts=1"],
        ["domain.rewards.correct.weight=2.0"],
    ],
    ids=" ".join,
)
def test_rewards_keep_the_weights_and_not_the_held_out_numbers(plain: tuple[str, str], overrides: list[str]) -> None:
    key, measured = keys(*overrides)
    assert key == plain[0]
    assert measured != plain[1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=1"],
        ["stages.warm_up.set.optimiser.learning_rate=0.5"],
        ["stages.warm_up.num_steps=3"],
        ["stages.warm_up.set.auxiliary.supervised=0.5"],
        ["stages.warm_up.set.train.demonstrations_per_step=3"],
        ["stages.warm_up.set.train.max_grad_norm=0.1"],
        ["train.weight_average.decay=0.9"],
        ["domain.model.shape.hidden_size=4"],
        ["domain.model.dtype=bfloat16"],
        ["domain.demonstrations.num=7"],
        ["domain.data.source.num_swaps=2"],
    ],
    ids=" ".join,
)
def test_what_a_supervised_stage_reads_makes_another(plain: tuple[str, str], overrides: list[str]) -> None:
    assert keys(*overrides)[0] != plain[0]


def test_processes_and_code_make_another(plain: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys(size=2)[0] != plain[0]
    read: list[str] = []
    monkeypatch.setattr(warm_up, "code_version", lambda *rooms: read.extend(rooms) or "")
    keys()
    assert {
        "domain/language/domain.py",
        "causal_lm/scoring.py",
        "training/step/update.py",
        "objective/loss.py",
        "schedule",
    } <= set(read)
    # The code of rewards counts for held-out numbers alone; slots of the objective and other domains for neither.
    assert not [name for name in read[: read.index("schedule")] if name.startswith("reward/")]
    assert {"reward/scoring/score.py", "reward/texts/exact_answer.py", "reward/images/psnr.py"} <= set(read)
    assert not [
        name
        for name in read
        if name.startswith(("objective/trust", "objective/advantage", "domain/diffusion", "domain/restoration"))
    ]


def test_early_stopping_looks_at_rewards(plain: tuple[str, str]) -> None:
    stops = ["train.evaluate_every=1", "train.early_stopping.patience=2"]
    assert keys(*stops)[0] != keys(*stops, "domain.rewards.correct.weight=2.0")[0]


def rows(run: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not depends_on_machine(name)}
        for row in read_metrics(run / "metrics.jsonl")
    ]


class OtherReward(ToyDomain):
    """The same policy, other held-out numbers."""

    def evaluate(self, *, streams: Any) -> Any:
        found = super().evaluate(streams=streams)
        return replace(found, metrics={name: value / 2 for name, value in found.metrics.items()})


def stages(rewards: str, objective: dict[str, Any], method: str = "grpo") -> list[Any]:
    made = [supervised(num_steps=4, evaluate_every=2), recipe("policy", method, objective=objective, num_steps=3)]
    return [replace(each, measures={"domain": {"rewards": rewards}}) for each in made]


@pytest.mark.parametrize("method", ["grpo", "dapo"])
def test_another_method_with_other_rewards_trains_as_if_it_had_warmed_up_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    adaptive = {
        "divergence.kind": "k3",
        "divergence.beta": {"kind": "adaptive", "initial": 0.3, "target": 0.05, "horizon": 10},
    }
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "shared"))
    lines = TrackConfig(console="lines")
    train(job(*stages("first", {"divergence.beta": 0.1}), track=lines), tmp_path / "first")

    def second(path: Path) -> Any:
        return train(job(*stages("second", adaptive, method), domain=lambda device: OtherReward(), track=lines), path)

    capsys.readouterr()
    kept = second(tmp_path / "kept")
    assert "an earlier run is used" in (said := capsys.readouterr().out)
    assert "the numbers of evaluations are measured anew" in said
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "own"))
    fresh = second(tmp_path / "fresh")
    assert "earlier run" not in capsys.readouterr().out
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("kept", "fresh")]
    assert weights[0] == weights[1]
    for name in ("before", "after", "metric", "steps", "seed"):
        assert kept.summary[name] == fresh.summary[name]
    found, expected = rows(tmp_path / "kept"), rows(tmp_path / "fresh")
    # Held-out numbers inside the warm-up are those of weights that are gone.
    inside = {2}
    expected = [
        {name: value for name, value in row.items() if row["step"] not in inside or not name.startswith("eval/")}
        for row in expected
    ]
    assert found == expected
    assert {path.name for path in (tmp_path / "kept" / "rollouts").glob("evaluation-*.jsonl")} == {
        f"evaluation-{step}.jsonl" for step in (0, 4, 7)
    }


def test_the_same_rewards_keep_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "shared"))
    for name in ("first", "second"):
        train(job(*stages("first", {})), tmp_path / name)
    assert rows(tmp_path / "first") == rows(tmp_path / "second")
    assert json.loads((tmp_path / "second" / "summary.json").read_text())["before"] is not None
