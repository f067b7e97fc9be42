"""`check`: one real group, and nothing trained."""

import json
from pathlib import Path

import pytest
from PIL import Image


def test_one_group_is_shown(groupwise, tiny_file: Path, tmp_path: Path):
    ended = groupwise(
        "check", tiny_file, "domain.rewards.brief.kind=length", "domain.rewards.brief.target=2", "--prompt", 2
    )
    assert (ended.status, ended.err) == (0, ""), ended
    lines = ended.out.splitlines()
    assert any(line.startswith("prompt: sort ") for line in lines)
    assert any("correct x 1" in line and "brief x 1" in line and "advantage" in line for line in lines)
    advantages = [float(line.split()[-1]) for line in lines if line.startswith((" 0 ", " 1 ", " 2 ", " 3 "))]
    assert len(advantages) == 4
    assert abs(sum(advantages)) < 0.01
    assert "nothing was trained" in ended.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "[float(len(text)) for text in completions]",
            "Each reward gives the same values again, and in reverse order.",
        ),
        (
            "[float(len(text)) for text in completions[1:] + completions[:1]]",
            "when it scored the group in reverse order",
        ),
        ("[random.random() for text in completions]", "when it scored the group again; a value belongs to the member"),
    ],
)
def test_laws_of_a_reward_are_tried_on_the_group(groupwise, tiny_file: Path, tmp_path: Path, body: str, told: str):
    name = f"lawful_{len(body)}"
    (tmp_path / f"{name}.py").write_text(f"import random\ndef f(completions, **columns):\n    return {body}\n")
    ended = groupwise("check", tiny_file, "--reward", f"{name}:f")
    assert ended.status == 0, ended
    assert told in " ".join(ended.out.split())


@pytest.mark.slow
def test_a_model_before_its_warm_up_is_called_so_and_one_after_it_too(groupwise, tiny_file: Path, tmp_path: Path):
    assert "the model answers as it is before warm_up, which check does not run" in groupwise("check", tiny_file).out
    assert groupwise("train", tiny_file, "--out", tmp_path / "run", "--no-controls").status == 0
    start = f"start={tmp_path / 'run'}"
    assert f"as it is after the warm-up of {tmp_path / 'run'}" in groupwise("check", tiny_file, start).out
    refused = groupwise("check", tiny_file, start, "domain.model.shape.hidden_size=8")
    assert refused.status == 2
    assert "domain.model.shape.hidden_size is 16 there and 8 in this run" in " ".join(refused.err.split())
    assert (
        "the model answers as it is"
        not in groupwise("check", tiny_file, "stages=[]", "train.num_steps=2", "controls=null").out
    )


def test_what_training_would_refuse_is_refused(groupwise, tiny_file: Path):
    assert (
        "write train.memory_limit_gib = 4"
        in groupwise("check", tiny_file, "train.micro_batch_members=auto", "train.device=cpu").err
    )


@pytest.mark.slow
def test_files_that_cannot_be_read_are_said_as_a_run_says_them(groupwise, tmp_path: Path):
    (tmp_path / "clean").mkdir()
    for number in range(3):
        Image.new("L", (8, 8), 60 * number).save(tmp_path / "clean" / f"{number}.png")
    (tmp_path / "clean" / "3.png").write_bytes(b"no image")
    (tmp_path / "folder.toml").write_text(
        """
        [domain]
        kind = "restoration"
        model = { kind = "network", network = { kind = "residual", channels = 1, width = 4, depth = 2 } }
        source = { kind = "folder", clean = "clean", channels = 1, num_held_out = 1 }
        degradation = { kind = "gaussian_noise", sigma = 0.1 }
        rewards = { psnr = { kind = "psnr" } }
        [train]
        prompts_per_step = 1
        """,
        encoding="utf-8",
    )
    ended = groupwise("check", "folder.toml")
    assert ended.status == 0, ended
    note = "note data: images left out because they cannot be read: 1 (3.png); the first: UnidentifiedImageError"
    assert note in " ".join(ended.out.split())


# `estimate`: the formula from a configuration alone, and a real step.


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


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["language", "selection"])
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
