"""Keys of other systems: every one of the tables is answered, and what an answer says to write is what the experiment
then has.
"""

import itertools
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_tables import BASE_OF, loaded, look_up, same

from groupwise.config import ConfigError, parse_overrides
from groupwise.experiment import load_experiment
from groupwise.experiment.counterparts import Row, counterpart, flags, rows
from groupwise.experiment.runner import run
from groupwise.track import read_metrics


def written(answer: str) -> list[str]:
    """The assignments that an answer says to write."""
    assert " is written " in answer, answer
    return shlex.split(answer.partition(" is written ")[2].partition(" here")[0])


@pytest.mark.parametrize(
    ("key", "value", "assignments"),
    [
        ("use_amic", True, ["ratio.kind=arithmetic"]),
        ("use_amic", "True", ["ratio.kind=arithmetic"]),
        ("ema_beta", 0.8, ["smoothing.kind=ema", "smoothing.beta=0.8"]),
        ("temporal_decay_normalize", "False", ["credit.temporal_decay.raw=true"]),
        ("grpo_clip_range", 0.1, ["trust.kind=clip", "trust.low=0.1", "trust.high=0.1", "train.updates_per_batch=2"]),
        ("GROUP_SIZE", 16, ["train.group_size=16"]),
        ("BETA_KL", 0.2, ["divergence.kind=k3", "divergence.beta=0.2"]),
        ("REWARD_MODE", "hybrid", ["domain.rewards.vqa.mode.kind=hybrid", "domain.rewards.vqa.mode.scale.kind=x10"]),
        (
            "SOFT_WEIGHT",
            0.5,
            ["domain.rewards.vqa.mode.kind=hard_plus_soft", "domain.rewards.vqa.mode.soft_weight=0.5"],
        ),
        (
            "HARD_WEIGHT",
            0.5,
            ["domain.rewards.vqa.mode.kind=hard_plus_soft", "domain.rewards.vqa.mode.hard_weight=0.5"],
        ),
        ("USE_RANK_ADVANTAGE", "true", ["advantage.kind=rank", "advantage.ties=order"]),
        ("normalize", True, ["advantage.kind=z_score", "advantage.min_std=0.1", "advantage.ddof=1"]),
        ("num_beams", 8, ["train.group_size=8"]),
        ("num_generations", 8, ["train.group_size=8"]),
        ("epsilon_high", 0.28, ["trust.kind=clip", "trust.high=0.28"]),
        (
            "ref_model_sync_steps",
            64,
            ["reference.kind=periodic", "reference.sync_steps=64", "divergence.kind=k3", "divergence.beta=0.04"],
        ),
        ("actor_rollout_ref.actor.clip_ratio", 0.3, ["trust.kind=clip", "trust.low=0.3", "trust.high=0.3"]),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo", ["method=gspo_token"]),
    ],
)
def test_a_key_with_its_value_is_written_as_ours(key, value, assignments):
    assert written(counterpart(key, value) or "") == assignments


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("use_amic", False, "source 000's use_amic=True is, for example, ratio.kind=arithmetic here: One slot holds"),
        ("rand_sampler", None, "source 004's rand_sampler is, for example, domain.source.kind=vqa "),
        ("min_p", 0.1, "TRL's min_p has no counterpart: They sample from another distribution"),
        ("reward_functions", None, "source 003's reward_functions is domain.rewards here: Any number"),
        ("advantages_std", None, "source 001's advantages_std is no setting; it is logged as advantages_std"),
        (
            "ppo_mini_batch_size",
            8,
            "verl's ppo_mini_batch_size is, for example, train.minibatches=4 here: How many optimiser steps",
        ),
        ("epochs", 20, "source 001's --epochs 20 is written train.num_epochs=20 here"),
    ],
)
def test_what_cannot_be_written_is_said_with_its_reason(key, value, message):
    assert (counterpart(key, value) or "").startswith(message)


def named(row: Row) -> str:
    return f"{row.system}'s {row.key}={row.value}"


def test_every_key_of_every_table_is_answered_by_its_own_system() -> None:
    def is_answered(row: Row, answer: str | None) -> bool:
        systems = {part.partition("'s ")[0] for part in (answer or "").split("; ")}
        return answer is not None and "\n" not in answer and (row.system in systems or " is written " in answer)

    answers = [(row, counterpart(row.written(), row.value)) for row in rows()]
    assert len(answers) > 300
    assert {named(row): answer for row, answer in answers if not is_answered(row, answer)} == {}


@pytest.mark.parametrize("key", ["num_generations", "top_p", "epsilon", "beta", "warmup_steps", "ppo_epochs"])
def test_a_written_counterpart_gives_the_experiment_its_value(tmp_path, key):
    value = 0.5 if key in ("top_p", "epsilon", "beta", "tau_pos") else 6
    answer = counterpart(key, value) or ""
    tree = {
        path: setting
        for assignment in written(answer)
        for path, setting in [
            (assignment.partition("=")[0], parse_overrides([f"x={assignment.partition('=')[2]}"])["x"])
        ]
    }
    experiment = loaded(tmp_path, tree, BASE_OF["trl"])
    for path, setting in tree.items():
        assert same(look_up(experiment, path), setting), path
    assert value in tree.values()


def test_the_error_of_an_unknown_key_is_one_line_that_answers():
    with pytest.raises(ConfigError) as error:
        load_experiment("language", ["use_amic=True"])
    assert str(error.value).endswith("unknown key; source 000's use_amic=True is written ratio.kind=arithmetic here")
    with pytest.raises(ConfigError, match=r"verl's policy_loss.loss_mode=gspo is written method=gspo_token here"):
        load_experiment("language", ["actor_rollout_ref.actor.policy_loss.loss_mode=gspo"])
    with pytest.raises(ConfigError) as error:
        load_experiment("language", ["ema_beta=0.8", "train.num_generations=4"])
    assert {line.strip() for line in str(error.value).splitlines()[1:]} == {
        "ema_beta = 0.8: unknown key; source 000's ema_beta=0.8 is written smoothing.kind=ema smoothing.beta=0.8 here",
        "train.num_generations = 4: unknown key; TRL's num_generations=4 is written train.group_size=4 here",
    }


def test_options_of_a_sources_command_line_are_answered_together():
    answers = flags(["language", "--grpo", "--grpo_group", "4", "--grpo_beta_kl=0.05", "--seed", "7"])
    assert [written(answer) for answer in answers] == [
        ["policy_weight=1.0"],
        ["train.group_size=4"],
        ["divergence.kind=exact", "divergence.beta=0.05"],
    ]


# Source 001's experiments themselves, a few steps of each stage: what they watch, by the table's names, and that each
# number is what its name says.


TABLE = Path(__file__).resolve().parents[2] / "src" / "groupwise" / "presets" / "keys" / "source_001.toml"
NUM = 3
SMALL = [
    "domain.evaluation.num_images=2",
    "domain.source.num_train=16",
    "train.demonstrations_per_step=2",
    "domain.source.num_held_out=2",
    "track.console=none",
    "controls=null",
    "train.prompts_per_step=2",
]
Rows = list[dict[str, Any]]


def stages_of(name: str, folder: Path, *overrides: str) -> dict[str, Rows]:
    experiment = load_experiment(
        name, [*SMALL, *overrides, *(f"stages.{stage.name}.num_steps={NUM}" for stage in load_experiment(name).stages)]
    )
    run(experiment, folder / "run")
    rows = [row for row in read_metrics(folder / "run" / "metrics.jsonl") if "grad_norm" in row]
    return {stage: list(stage_rows) for stage, stage_rows in itertools.groupby(rows, key=lambda row: row["stage"])}


def watched() -> set[str]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name for section in table["section"] for key in section["key"] for name in key.get("metrics", ())}


@pytest.mark.slow
def test_the_progressive_stages(tmp_path: Path) -> None:
    stages = stages_of("source_001_progressive", tmp_path)
    assert list(stages) == ["base", "supervised", "progressive", "full"]
    for row in (*stages["base"], *stages["supervised"]):
        assert row["lambda_pg"] == 0
        assert row["lambda_sup"] == 1
        assert row["loss"] == pytest.approx(row["loss_sup"])
        assert "rewards_mean" not in row
    sampled = [*stages["progressive"], *stages["full"]]
    for row in sampled:
        assert watched() <= set(row)
        assert row["lambda_pg"] == 1
        assert row["loss"] == pytest.approx(
            row["loss_pg"] + row["loss_sup"] + row["loss_cons"] + row["loss_kl"], rel=1e-6
        )
        assert row["rewards_mean"] == pytest.approx(0.6 * row["rewards/psnr/mean"] + 0.4 * row["rewards/ssim/mean"])
        assert 0 < row["loss_kl"] != pytest.approx(row["loss_cons"])
    assert [row["group_size"] for row in sampled] == [2] * NUM + [3] * NUM
    # Two updates a step, four hundred to come down; a rate that rises over its warm-up and is another one in the last
    # stage.
    assert [row["lambda_sup"] for row in sampled] == pytest.approx(
        [0.5 - 0.25 * 2 * step / 400 for step in range(NUM)] + [0.25] * NUM
    )
    rates = [5e-6 * (step + 1) / 40 for step in range(NUM)] + [2e-6 * (step + 1) / 20 for step in range(NUM)]
    assert [row["learning_rate"] for row in sampled] == pytest.approx(rates)
    # An average of what was seen, from the first batch on, through both stages.
    weights = [0.99 ** (len(sampled) - 1 - place) for place in range(len(sampled))]
    for name, batch_metric in (("global_reward_mean", "rewards_mean"), ("global_reward_std", "rewards_std")):
        assert sampled[0][name] == pytest.approx(sampled[0][batch_metric])
        assert sampled[-1][name] == pytest.approx(
            sum(weight * row[batch_metric] for weight, row in zip(weights, sampled, strict=True)) / sum(weights)
        )
    # In groups of two the comparison is even; the first batch is scaled by its own spread.
    assert all(abs(row["advantages_mean"]) < 1e-9 for row in stages["progressive"])
    assert sampled[0]["advantages_std"] == pytest.approx(1, abs=0.05)
