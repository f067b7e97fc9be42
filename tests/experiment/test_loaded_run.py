"""A run as tables and objects."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import groupwise
from groupwise.config import ConfigError
from groupwise.experiment.loaded_run import WHOLE, HeldOut, LoadedRun, final_scores
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.runner import open_domain
from groupwise.experiment.trial import one_group
from groupwise.streams import Streams
from groupwise_look.compare.statistics import Spread, crossed, nested

CHANGES = [
    *(
        "domain.data.num_train=16",
        "domain.data.num_held_out=4",
        "domain.demonstrations.num=8",
        "stages.warm_up.num_steps=1",
        "stages.grpo.num_steps=3",
    ),
    *(
        "train.prompts_per_step=2",
        "train.group_size=3",
        "controls=null",
        "track.console=none",
    ),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    folder = tmp_path_factory.mktemp("loaded") / "run"
    groupwise.train(groupwise.load_experiment("language", CHANGES), out=folder)
    return groupwise.load_run(folder)


def test_metrics_are_the_rows_of_the_file(loaded: LoadedRun) -> None:
    rows = [json.loads(line) for line in (loaded.run.path / "metrics.jsonl").read_text().splitlines()]
    frame = loaded.metrics.to_pandas()
    assert frame["step"].max() == 4
    (last,) = [row for row in rows if row["step"] == 4 and "reward" in row]
    assert frame[frame["step"] == 4]["reward"].iloc[-1] == pytest.approx(last["reward"])


def test_members_have_their_step_and_their_rewards(loaded: LoadedRun) -> None:
    members = loaded.rollouts.to_pylist()
    steps = [member["step"] for member in members]
    assert set(steps) == set(loaded.run.rollouts)
    assert all(steps.count(step) == 6 for step in set(steps))
    assert steps
    assert all("rewards.correct" in member for member in members)
    assert loaded.evaluations.num_rows > 0


def test_the_domain_of_a_loaded_run_has_the_trained_weights(loaded: LoadedRun) -> None:
    domain = loaded.domain()
    with torch.no_grad():
        metrics = domain.evaluate(streams=Streams(loaded.config["seed"])).metrics
    assert metrics[loaded.summary["metric"]] == pytest.approx(loaded.summary["after"])
    assert loaded.config["name"] == "language"


def test_types_that_differ_in_a_column_are_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "odd": 1}\n{"step": 2, "odd": "two"}\n{"step": 3}\n')
    run = groupwise.load_run(tmp_path)
    assert run.metrics.column("odd").to_pylist() == ["1", '"two"', None]
    assert run.summary == {}
    with pytest.raises(ConfigError, match="has no model yet"):
        _ = run.model_folder


# Scores of a run, read prompt by prompt from its folder.


RECORDS = [
    {"key": "a", "mode": "greedy", "sample": 0, "rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 3},
    {"key": "b", "mode": "greedy", "sample": 0, "rewards": {"correct": 0.0, "brief": None}, "num_tokens": 5},
    {"key": "a", "mode": "sampled", "sample": 0, "rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 4},
    {"key": "a", "mode": "sampled", "sample": 1, "rewards": {"correct": 0.0, "brief": 0.5}, "num_tokens": 6},
]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("greedy/correct", {"a": 1.0, "b": 0.0}),
        ("sampled/correct", {"a": 0.5}),
        ("greedy/length", {"a": 3, "b": 5}),
        ("greedy/reward", {"a": 1.0 * 2 + 0.5, "b": 0.0}),
        ("greedy/brief", {"a": 0.5}),
        ("sampled/pass@2", {WHOLE: 0.25}),
    ],
)
def test_scores_by_prompt(metric: str, expected: dict[str, float]):
    assert HeldOut(metric, 0, RECORDS, 0.25).scores({"correct": 2.0, "brief": 1.0}) == expected


def test_a_sum_that_the_domain_gives_counts_whatever_else_the_record_measures():
    record = {"key": "a", "mode": "restored", "rewards": {"read": 0.5, "psnr": 30.0}, "reward": 0.5}
    assert HeldOut("restored/reward", 0, [record], None).scores({"read": 1.0}) == {"a": 0.5}
    assert HeldOut("restored/psnr", 0, [record], None).scores({}) == {"a": 30.0}


def write_run(folder: Path, summary: dict[str, Any] | None, records: dict[int, list[dict[str, Any]]]) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"domain": {"rewards": {"correct": {"weight": 1.0}, "brief": {"role": "judge"}}}})
    )
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    for step, lines in records.items():
        (folder / "rollouts" / f"evaluation-{step}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    return folder


def test_the_last_evaluation_counts_and_judges_do_not(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    run = write_run(tmp_path / "run", summary, {9: RECORDS[1:2], 10: RECORDS[:2]})
    assert final_scores(run) == {"a": 1.0, "b": 0.0}


def test_an_environment_counts_with_its_own_weight(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    record = {"key": "a", "mode": "greedy", "rewards": {"environment": 1.0, "correct": 0.5}}
    run = write_run(tmp_path / "run", summary, {10: [record]})
    config = {
        "domain": {"rewards": {"correct": {"weight": 2.0}}, "environment": {"kind": "calculator", "weight": 0.25}}
    }
    (run / "config.json").write_text(json.dumps(config))
    assert final_scores(run) == {"a": 0.25 * 1.0 + 2.0 * 0.5}


def test_a_run_without_records_has_its_mean_and_one_without_an_end_is_an_error(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    assert final_scores(write_run(tmp_path / "short", summary, {})) == {WHOLE: 0.5}
    with pytest.raises(ConfigError, match="groupwise resume"):
        final_scores(write_run(tmp_path / "open", None, {}))


# The parts of a variance: by hand on small tables, and right on average on drawn ones.


def test_a_table_by_hand():
    # Rows 0 1 and 2 5: means 1/2 and 7/2, columns 1 and 3, grand mean 2. MS_s = 2 (2.25 + 2.25) = 9, MS_p = 2 (1 + 1) =
    # 4, MS_e = 4 (1/2)^2 = 1.
    spread = crossed(np.array([[0.0, 1.0], [2.0, 5.0]]))
    assert (spread.seeds, spread.prompts) == pytest.approx((9 / 4, 3 / 4))
    assert spread.standard_error == pytest.approx(3**0.5)
    assert spread.degrees == pytest.approx(9 / ((9 / 4) ** 2 + (3 / 4) ** 2))
    assert spread.at(4).seeds == pytest.approx(9 / 8)


def test_seeds_that_agree_by_chance_are_not_taken_for_certain():
    # Equal row means, with single scores that differ: MS_s = 0, MS_e = 1.
    spread = crossed(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert (spread.seeds, spread.prompts) == pytest.approx((1 / 4, 0.0))


def test_one_seed_has_only_prompts_and_one_prompt_only_seeds():
    assert crossed(np.array([[0.0, 1.0, 0.0, 1.0]])) == Spread(0.0, pytest.approx(1 / 12), 1, 4)
    assert crossed(np.array([[0.0], [1.0]])) == Spread(0.25, 0.0, 2, 1, (0.0, 1.0))


def test_on_average_it_is_the_variance_of_the_mean():
    random = np.random.default_rng(0)
    num_seeds, num_prompts, variances, means = 4, 30, [], []
    for _ in range(2000):
        table = (
            random.normal(0, 0.1, (num_seeds, 1))
            + random.normal(0, 0.4, (1, num_prompts))
            + random.normal(0, 0.5, (num_seeds, num_prompts))
        )
        variances.append(crossed(table).standard_error ** 2)
        means.append(table.mean())
    assert np.mean(variances) == pytest.approx(0.1**2 / 4 + 0.4**2 / 30 + 0.5**2 / 120, rel=0.1)
    assert np.var(means) == pytest.approx(np.mean(variances), rel=0.1)


def test_own_prompts_are_part_of_the_seeds():
    assert nested([np.array([0.0, 1.0]), np.array([1.0]), np.array([3.0, 3.0])]).seeds == pytest.approx(
        np.var([0.5, 1.0, 3.0], ddof=1) / 3
    )
    # Equal means: the noise of the scores, variances 1/2 over two prompts each, over two seeds.
    assert nested([np.array([0.0, 1.0]), np.array([1.0, 0.0])]).seeds == pytest.approx(1 / 4 / 2)


# One real group: what it shows is what the objective computes from the rewards it shows.


def test_advantages_are_the_z_scores_of_the_rewards_shown(tiny: Path):
    experiment = load_experiment(
        tiny, ["domain.rewards.brief.kind=length", "domain.rewards.brief.target=2", "domain.rewards.brief.weight=0.5"]
    )
    domain = open_domain(experiment)
    for index in range(8):
        group = one_group(experiment.spans[1], domain, index)
        if not group.flat:
            break
    totals = [
        correct + 0.5 * brief for correct, brief in zip(group.rewards["correct"], group.rewards["brief"], strict=True)
    ]
    mean, spread = statistics.fmean(totals), statistics.stdev(totals)
    assert spread > 0
    assert group.advantages == pytest.approx([(total - mean) / spread for total in totals], abs=1e-5)
    assert group.weights == {"correct": 1.0, "brief": 0.5}
    assert group.prompt["prompt"].startswith("sort ")
    assert [member["num_tokens"] for member in group.members] == list(group.num_decisions)
