"""`check`: one real group, and nothing trained."""

from __future__ import annotations

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


@pytest.mark.parametrize("domain", ["language", pytest.param("selection", marks=pytest.mark.slow)])
def test_a_real_step_is_measured(groupwise, domain: str):
    ended = groupwise("check", domain, "train.prompts_per_step=2", "--measure")
    assert ended.status == 0, ended
    words = [line.split() for line in ended.out.splitlines() if line.endswith(("s ", "s", "GiB ", "GiB"))]
    measured = {" ".join(line[:-2]): float(line[-2]) for line in words if line[-1] in ("s", "GiB")}
    assert {"sampling", "rewards", "update", "whole step", "peak memory"} <= measured.keys()
