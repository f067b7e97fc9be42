"""A run of restoration, and what the commands that it suggests at its end give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from groupwise_images.restoration.loading import load

DIGITS = """
method = "grpo"

[domain]
kind = "restoration"

[domain.model]
kind = "network"

[domain.model.network]
kind = "residual"
width = 4
depth = 1

[domain.source]
kind = "digits"
num_train = 12

[domain.degradation]
kind = "blur"

[domain.rewards.psnr]
kind = "psnr"

[domain.evaluation]
num_images = 4

[train]
num_steps = 1
prompts_per_step = 2
group_size = 2
"""


def test_a_held_out_image_is_restored_and_the_network_loads_elsewhere(groupwise, tmp_path: Path):
    (tmp_path / "digits.toml").write_text(DIGITS)
    ended = groupwise("train", "digits.toml", "--out", "run")
    assert ended.status == 0, ended
    commands = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("    groupwise ")]
    sample, export = (next(command for command in commands if command[0] == verb) for verb in ("sample", "export"))
    assert "--prompt" in sample
    assert "restore an image of the evaluation\n" in ended.out
    restored = groupwise(*sample)
    assert restored.status == 0, restored
    exported = groupwise(*export)
    assert f'groupwise_images.restoration.loading.load("{export[-1]}")' in exported.out
    network = load(export[-1])
    assert not network.training
    written = {name: torch.from_numpy(np.array(Image.open(f"samples/0-{name}.png"))) for name in ("image", "degraded")}
    with torch.no_grad():
        output = network(written["degraded"][None, None] / 255).clamp(0, 1)[0, 0]
    # What was given went through 8 bits on its way here.
    assert (output * 255 - written["image"]).abs().max() < 4


def test_an_image_that_there_is_not_is_named(groupwise, tmp_path: Path):
    (tmp_path / "digits.toml").write_text(DIGITS)
    assert groupwise("train", "digits.toml", "--out", "run").status == 0
    ended = groupwise("sample", "run", "--prompt", "digit 9999")
    assert ended.status == 2
    assert "prompt 'digit 9999' is no image of the source" in ended.err
