"""The programs of `examples/`, each run as it stands on a small model made here."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.experiment.tiny import TINY
from tests.integrations.sums import model
from tests.selection.small_selector import QUESTION, small_selector

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The folder of a causal language model of some thousand weights."""
    policy, tokenizer = model()
    policy.save_pretrained(tmp_path / "model")
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def program(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.slow
def test_the_loop_of_ones_own_learns(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    means = program("own_loop").train(folder)
    assert len(means) == 40
    assert sum(means[-5:]) > 2 * sum(means[:5])
    assert capsys.readouterr().out.count("reward") == 40


def test_the_own_loop_scores_the_sampled_tokens(folder: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[3, 4, 5], [6, 7, 8]])
    scored = program("own_loop").log_probs(policy, ids, 1)
    plain = policy(ids).logits.log_softmax(-1)
    expected = torch.stack([torch.stack([plain[b, t, ids[b, t + 1]] for t in range(2)]) for b in range(2)])
    assert torch.allclose(scored, expected, atol=1e-6)


@pytest.mark.slow
def test_trl_trains_with_an_objective_of_ours(folder: str, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM

    rows = program("inside_trl").train(folder, str(tmp_path / "out"), num_steps=3)
    assert len(rows) == 3
    assert json.loads((tmp_path / "out" / "checkpoint-3" / "groupwise_objective.json").read_text())
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").num_parameters() > 0


@pytest.fixture
def server() -> Iterator[str]:
    opened = program("reward_over_http").serve(0)
    thread = threading.Thread(target=opened.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{opened.server_address[1]}"
    opened.shutdown()
    opened.server_close()


@pytest.mark.slow
def test_a_reward_is_asked_over_http(folder: str, server: str, tmp_path: Path) -> None:
    from groupwise.track import read_metrics

    summary = program("reward_over_http").train(server, folder, str(tmp_path / "run"), num_steps=2)
    assert summary["steps"] == 2
    steps = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "rewards/right/mean" in row]
    assert len(steps) == 2


def test_the_server_scores_what_it_is_sent(server: str) -> None:
    import asyncio

    remote = program("reward_over_http").Remote(server)
    assert asyncio.run(remote(["4", " 4.", "5"], ["4", "4", "4"])) == [1.0, 1.0, 0.0]


@pytest.mark.slow
def test_a_pipeline_of_diffusers_is_trained(tmp_path: Path) -> None:
    from tests.images.diffusion.models.tiny import saved

    example = program("diffusion_pipeline")
    pipeline = saved("StableDiffusion3Pipeline", tmp_path / "pipeline")
    changes = {"train.num_steps": 1, "train.group_size": 2, "train.prompts_per_step": 2, "domain.num_steps": 3}
    changes["domain.evaluation.num_prompts"] = 2
    summary = example.train(str(pipeline), str(tmp_path / "run"), **changes)
    assert summary["steps"] == 1
    import torch

    assert example.dark([torch.zeros(2, 2, 3, dtype=torch.uint8)]) == [1.0]


@pytest.mark.slow
def test_a_selector_chooses_the_demonstrations_of_a_dspy_program(tmp_path: Path) -> None:
    dspy = pytest.importorskip("dspy")
    from dspy.utils import DummyLM

    small_selector().save(tmp_path / "selector")
    text, shown = program("selection_in_dspy").answer(
        str(tmp_path / "selector"), DummyLM([{"answer": "oak"}]), QUESTION
    )
    assert text == "oak"
    assert len(set(shown)) == 3
    assert dspy.settings.lm is None


@pytest.mark.nightly
def test_a_sweep_runs_on_ray_and_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        example = program("sweep_on_ray")
        grid = [{"method": "grpo"}, {"method": "dr_grpo"}]
        first = example.sweep(str(tmp_path / "tiny.toml"), grid, "sweep")
        again = example.sweep(str(tmp_path / "tiny.toml"), grid[:1], "sweep")
    finally:
        ray.shutdown()
    assert again[0] in first
    assert first[0]["after"] >= first[1]["after"]
    assert {point["changes"]["method"] for point in first} == {"grpo", "dr_grpo"}


@pytest.mark.slow
def test_okvqa_makes_its_data_and_models_and_trains_on_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "okvqa"))
    monkeypatch.setattr("sys.argv", ["make_okvqa.py", "okvqa", "--steps", "2"])
    program("make_okvqa").main()
    settings = ["train.num_steps=1", "domain.source.num_train=24", "domain.source.num_validation=2"]
    settings += ["domain.source.pool_size=8"]
    settings += ["domain.source.num_held_out=4", "domain.evaluation.tables=false", "domain.task_model.cache=false"]
    run(load_experiment(str(EXAMPLES / "okvqa" / "okvqa.toml"), settings), out=tmp_path / "run")
    (score,) = {
        row["eval/selected/accuracy"]
        for row in read_metrics(tmp_path / "run" / "metrics.jsonl")
        if row.get("step") == 1
    }
    assert 0 <= score <= 1
