"""`estimate`: the formula from a configuration alone, and a real step."""

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


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    return tmp_path / "config.json"


def test_a_configuration_alone_has_a_formula_and_no_step(groupwise, qwen: Path):
    ended = groupwise("estimate", "language", "divergence.kind=k3", "--model", qwen, "--gpus", 64)
    assert ended.status == 0, ended
    for words in (
        "494.0 million weights, 494.0 million trained: 24 layers of width 896, vocabulary 151936",
        "48 of the 64 devices get no prompt: a step has 16; set train.prompts_per_step higher",
        "there is a configuration without weights",
    ):
        assert words in ended.out, words
    rows = {line.split()[0]: line.split()[1] for line in ended.out.splitlines() if "bytes x" in line}
    assert rows == dict.fromkeys(("weights", "gradients", "reference"), "1.84") | {"moments": "3.68"}
    shards = groupwise("estimate", "language", "--model", qwen, "--gpus", 2, "train.sharding=full").out
    assert "2 x 4 bytes x trained / 2" in shards
    assert "Beside it" not in shards
    half = 'domain.engine.arguments=["--gpu-memory-utilization=0.5"]'
    served = ("language", "--model", qwen, "domain.engine.kind=vllm", "domain.engine.start=true", half)
    assert "a vLLM server takes 50% of the device's memory" in groupwise("estimate", *served).out


@pytest.mark.parametrize("domain", ["language", pytest.param("selection", marks=pytest.mark.slow)])
def test_a_real_step_is_measured(groupwise, domain: str):
    ended = groupwise("estimate", domain, "train.prompts_per_step=2")
    assert ended.status == 0, ended
    words = [line.split() for line in ended.out.splitlines() if line.endswith(("s ", "s", "GiB ", "GiB"))]
    measured = {" ".join(line[:-2]): float(line[-2]) for line in words if line[-1] in ("s", "GiB")}
    assert {"sampling", "rewards", "update", "whole step", "peak memory"} <= measured.keys()
    assert ("Memory by formula" in ended.out) == (domain == "language")


def test_an_experiment_that_cannot_be_estimated_is_an_error(groupwise, tmp_path: Path):
    unmeasured = ("--no-measure",)
    assert "no formula for the memory of the domain 'selection'" in groupwise("estimate", "selection", *unmeasured).err
    assert "no config.json can be read" in groupwise("estimate", "--model", tmp_path, *unmeasured).err
    assert "no stage samples" in groupwise("estimate", "language", "policy_weight=0", "stages=[]", "controls=null").err
