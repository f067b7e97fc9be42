"""Whole runs of the diffusion domain: methods learn from a reward alone, and a run folder holds what it should."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.small import TABLE
from transformers import AutoModelForCausalLM, AutoTokenizer

import groupwise
from groupwise.cli.app import app
from groupwise.config import ConfigError, merge
from groupwise.domain.pass_sizes import DECODING, SAMPLING, UPDATE
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.models.bare import BareDenoiser
from groupwise_selection.task_model.ticket_lm import trained_folder

LEARNS = {
    "method": "grpo",
    # A denoiser with fresh weights; its images are to become bright.
    "domain": merge(TABLE, {"model": {"dtype": "float32"}, "demonstrations": None, "evaluation": {"num_images": 8}}),
    "train": {"num_steps": 30, "prompts_per_step": 3, "group_size": 8, "metric": "ode/bright"},
    "optimiser": {"learning_rate": 0.01},
    "track": {"console": "none", "rollouts_every": 10},
}


def ran(folder: Path, **changes: Any) -> Any:
    folder.mkdir(exist_ok=True)
    file = folder / "experiment.json"
    file.write_text(json.dumps(merge(LEARNS, changes)))
    return run(load_experiment(file, run_code=True), folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["flow_grpo", "awm", "grpo_guard", "diffusion_nft", "flow_dppo", "grpo", "gspo", "ptrw"]
)
def test_a_method_learns_from_the_reward_alone(tmp_path: Path, method: str) -> None:
    summary = ran(tmp_path, method=method).summary
    assert summary["after"] > summary["before"] + 0.1, (summary["before"], summary["after"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["awm", "diffusion_nft"])
def test_updates_away_from_the_policy_that_sampled(tmp_path: Path, method: str) -> None:
    result = ran(
        tmp_path,
        method=method,
        train={"num_steps": 3, "updates_per_batch": 2, "minibatches": 2, "micro_batch_members": 5},
    )
    rows = [row for row in read_metrics(result.folder.metrics) if "loss_pg" in row]
    assert rows[-1]["on_policy_share"] == 0.25
    assert rows[-1]["updates/taken"] == 4
    assert "kl" in rows[-1]


def test_a_run_leaves_images_from_the_same_noise_before_and_after(tmp_path: Path) -> None:
    result = ran(tmp_path, train={"num_steps": 2})
    folder = result.folder.path
    assert [path.parent.name for path in sorted((folder / "rollouts").rglob("images.png"))] == [
        "evaluation-0",
        "evaluation-2",
    ]
    assert (folder / "model" / "transformer" / "diffusion_pytorch_model.safetensors").is_file()
    assert (folder / "model" / "scheduler" / "scheduler_config.json").is_file()
    rows = list(read_metrics(result.folder.metrics))
    assert {"eval/ode/bright", "eval/ode/diversity"} <= set(rows[0])


def test_a_step_runs_the_model_once_a_transition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for owner, name in (
        (DiffusionDomain, "score"),
        (DiffusionDomain, "with_reference"),
        (DiffusionDomain, "backward"),
        (BareDenoiser, "predict"),
    ):
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda *args, _name=name, _original=original, **kw: (calls.append(_name), _original(*args, **kw))[1],
        )
    known = {SAMPLING: 2**20, UPDATE: 2**20, DECODING: 64}
    monkeypatch.setattr(DiffusionDomain, "fit_passes", lambda domain, *_, **__: domain.pass_sizes.restore(known))
    # Four transitions an image: evaluated, sampled, and evaluated again.
    drawn = ["predict"] * 4
    ran(tmp_path, method="flow_grpo", train={"num_steps": 1})
    assert calls == [
        *drawn,
        *drawn,
        "with_reference",
        "predict",
        "backward",
        *drawn,
    ], "the reference takes one pass, the update none"
    calls.clear()
    (tmp_path / "other").mkdir()
    ran(tmp_path / "other", method="flow_grpo", divergence={"kind": "none"}, train={"num_steps": 1})
    assert calls == [*drawn, *drawn, "backward", *drawn], "without a KL there is no reference pass"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gradient_adaptive", "aggressive", "all_compatible", "balanced"])
def test_credit_by_surprisal_runs_by_the_norm_of_the_score_instead(tmp_path: Path, method: str) -> None:
    more = {"train": {"num_steps": 2, "updates_per_batch": 2}}
    surprisal, norm = ({"credit": {"gradient_adaptive": {"signal": signal}}} for signal in ("surprisal", "score_norm"))
    with pytest.raises(
        ConfigError,
        match=r"write credit.gradient_adaptive.signal = 'score_norm'; this domain's decisions are continuous",
    ):
        ran(tmp_path / "refused", method=method, **surprisal)
    result, named = ran(tmp_path / "auto", method=method, **more), ran(tmp_path / "norm", method=method, **norm, **more)
    assert (result.summary["before"], result.summary["after"]) == (named.summary["before"], named.summary["after"])
    rows = [row for row in read_metrics(result.folder.metrics) if "grad_norm" in row]
    assert all(float(row["grad_norm"] or 0) > 0 for row in rows)


# The restoration domain's default at its full length: the reward is earned, and not by what supervised training would
# have given as well.


@pytest.mark.nightly
def test_the_default_reads_better_than_its_control_by_a_reader_and_by_a_judge(tmp_path: Path) -> None:
    summary = run(load_experiment("restoration", ["track.console=none"]), tmp_path / "run").summary
    over = summary["controls"]["supervised"]
    (read, low, _), (judge, _, _) = over["restored/read"], over["restored/judge"]
    assert read >= 0.04
    assert low > 0
    assert judge >= 0.01
    assert summary["baseline"] - summary["before"] < 0.03, "supervised training had come to its end"


# A real run of the selection default, shortened: it leaves nearest neighbours behind on held-out questions, and its
# table says so.


@pytest.mark.nightly
def test_the_default_learns_to_choose_within_a_few_steps(tmp_path: Path) -> None:
    changes = [
        "train.num_steps=40",
        "domain.evaluation.num_oracle=20",
        "domain.evaluation.num_fixed=16",
        "domain.evaluation.num_resamples=200",
    ]
    result = run(load_experiment("selection", changes), tmp_path / "run")
    assert result.summary["after"] > result.summary["before"] + 0.03
    table = json.loads((tmp_path / "run" / "tables" / "lead.json").read_text())
    lead = {row[0]: row[1:] for row in table["rows"]}
    assert lead["kNN"][0]["low"] > 0, "one demonstration: beyond chance"
    assert lead["random"][3]["low"] > 0
    assert (tmp_path / "run" / "model" / "policy.json").is_file()
    assert (tmp_path / "run" / "tables" / "baselines.md").read_text().count("\n| ") == 12


# A selector from its run to its use: exported, then asked as the guide says, with the run's own task model writing
# the answers.


CHANGES = [
    "domain.source={ kind = 'tickets', num_train = 512, num_validation = 32, num_held_out = 256 }",
    "domain.task_model={ kind = 'ticket_lm', num_steps = 400 }",
    "domain.evaluation={ num_oracle = 2, num_fixed = 2, num_resamples = 100 }",
    "train.num_steps=30",
    "optimiser.learning_rate=0.002",
    "track.console=none",
]


@pytest.mark.nightly
def test_the_folder_answers_as_often_right_as_its_card_and_its_table_say(tmp_path: Path) -> None:
    experiment = load_experiment("selection_text", CHANGES)
    done = run(experiment, tmp_path / "run").folder.path
    with pytest.raises(SystemExit) as ended:
        app(["export", str(done), "--out", str(tmp_path / "ticket-selector")])
    assert ended.value.code in (0, None)
    place = trained_folder(experiment.domain.task_model)
    model, words = AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    selector = groupwise.Selector.load(tmp_path / "ticket-selector")
    held_out = experiment.domain.source.read().held_out

    @torch.no_grad()
    def right(k: int) -> float:
        found = 0
        for query in held_out:
            ids = words(selector.prompt(query.question, k=k), return_tensors="pt").input_ids
            written = model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0)
            found += words.decode(written[0, ids.shape[1] :]).strip() == query.answer
        return found / len(held_out)

    used = [right(k) for k in (1, 2, 3, 4)]
    card = (tmp_path / "ticket-selector" / "README.md").read_text()
    told = re.search(r"^\| as exported \|(.+)\|$", card, re.MULTILINE)
    assert told is not None
    # What is written is the most probable of all words, what the card says the most probable of the desks: the same
    # word wherever the model knows its task.
    assert [float(cell) for cell in told[1].split("|")][:4] == pytest.approx(used, abs=0.5e-3 + 2 / len(held_out))
    table = {row[0]: row[1:] for row in json.loads((done / "tables" / "baselines.json").read_text())["rows"]}
    for score, exported, pooled, nearest in zip(
        used, table["ours, as exported"], table["ours"], table["kNN, as exported"], strict=True
    ):
        assert score == pytest.approx(exported["mean"], abs=2 / len(held_out))
        # Two samples of the same number of queries, out of pools that differ: three standard errors of their difference
        # at most, were they independent.
        assert abs(score - pooled["mean"]) < 3 * math.sqrt(2 * 0.25 / len(held_out))
        assert score > nearest["mean"]
