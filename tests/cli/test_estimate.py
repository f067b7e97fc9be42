"""`estimate`: documented machines at once, this one after a calibration, and beside a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


def test_a_model_on_documented_gpus(groupwise, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    ended = groupwise(
        "estimate",
        "language",
        "divergence.kind=k3",
        "--model",
        tmp_path / "config.json",
        "--gpu",
        "H100",
        "--gpus",
        8,
        "--prompt-tokens",
        200,
    )
    assert ended.status == 0, ended
    for word in (
        "494.0 million parameters",
        "8 x H100, by documented peaks",
        "sampling",
        "scoring",
        "update",
        "communication",
        "reference",
        "held at once",
    ):
        assert word in ended.out, word
    assert "extrapolated: H100: documented peaks" in ended.out
    many = groupwise(
        "estimate",
        "language",
        "--model",
        tmp_path / "config.json",
        "--gpu",
        "H100",
        "--gpus",
        64,
        "train.prompts_per_step=16",
    )
    assert "48 of the 64 devices get no prompt: a step has 16; set train.prompts_per_step higher" in many.out


def test_an_experiment_that_cannot_be_estimated_is_an_error(groupwise, tmp_path: Path):
    assert "known are A100, H100" in groupwise("estimate", "--gpu", "H1000").err
    assert "has the domain 'selection'" in groupwise("estimate", "selection").err
    assert "there is no config.json" in groupwise("estimate", "--model", tmp_path, "--gpu", "H100").err


@pytest.mark.slow
def test_models_that_make_images_are_counted(groupwise):
    ended = groupwise("estimate", "diffusion", "--gpu", "H100", "train.prompts_per_step=5")
    assert ended.status == 0, ended
    words = ("DiTTransformer2DModel, images of 8 x 8 pixels", "5 prompts x 16 members", "a pass of update", "of 75")
    for word in words:
        assert word in ended.out, word


@pytest.mark.slow
def test_a_run_of_a_model_that_makes_images_stands_beside_its_estimate(groupwise, tmp_path: Path):
    sizes = ("train.prompts_per_step=1", "train.group_size=2", "domain.num_steps=2", "train.num_steps=3")
    run = tmp_path / "run"
    ended = groupwise("train", "diffusion", *sizes, "stages=[]", "controls=null", "--out", run)
    assert ended.status == 0, ended
    ended = groupwise("estimate", "--against", run, "--gpu", "H100")
    assert ended.status == 0, ended
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["part", "seconds", "TFLOP", "a", "device", "measured", "seconds", "ratio"] in lines
    for part in ("sampling", "update"):
        seconds, _, taken, ratio = next(map(float, line[1:]) for line in lines if line[:1] == [part] and len(line) == 5)
        assert ratio == pytest.approx(seconds / taken, abs=0.006)


@pytest.mark.slow
def test_a_runs_measured_seconds_stand_beside_the_estimate(
    groupwise, finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from groupwise.estimate.calibration import PROBES

    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("groupwise.estimate.calibration.PROBES", PROBES[:5])
    ended = groupwise("estimate", "--against", finished, "train.num_threads=1")
    assert ended.status == 0, ended
    assert "measured seconds" in ended.out
    assert "documented peaks" not in ended.out


@pytest.mark.slow
def test_the_sharding_of_the_experiment_counts(groupwise, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    command = ("estimate", "language", "--model", tmp_path / "config.json", "--gpu", "H100", "--gpus", 2)
    of_the_key, of_the_option, overruled = (
        groupwise(*command, *more).out
        for more in (
            ["train.sharding=full"],
            ["--sharding", "full"],
            ["train.sharding=full", "--sharding", "none"],
        )
    )
    assert of_the_key == of_the_option
    assert "extrapolated: sharded weights" in of_the_key
    assert "sharded weights" not in overruled


@pytest.mark.slow
def test_a_server_that_shares_the_gpu_counts(groupwise, tmp_path: Path):
    """An H100 has 74.5 GiB; vLLM takes its share of them before the trainer asks for anything."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    command = ("estimate", "language", "--model", tmp_path / "config.json", "--gpu", "H100", "domain.engine.kind=vllm")
    started = (*command, "domain.engine.start=true")
    half = 'domain.engine.arguments=["--gpu-memory-utilization=0.5"]'
    own, all_of_it, half_of_it = (groupwise(*words).out for words in (command, started, (*started, half)))
    assert "server" not in own
    assert ["server", "68.5"] in [line.split() for line in all_of_it.splitlines()]
    assert "too much" in all_of_it
    assert ["server", "37.3"] in [line.split() for line in half_of_it.splitlines()]
    assert "too much" not in half_of_it
