"""A run of restoration, and what the commands that it suggests at its end give."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.images.diffusion.small import TABLE

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


# Nothing trained on is called held-out: not while a run goes on, at its end, by evaluate, on the card, on a page or
# in a comparison.


EXPERIMENT = {
    "name": "small",
    "method": "grpo",
    "domain": {**TABLE, "rewards": {"small": {"kind": "jpeg_size"}}},
    "train": {"num_steps": 1, "prompts_per_step": 2, "group_size": 2},
    "track": {"console": "lines"},
    "controls": {"more": {"description": "", "set": {"optimiser": {"learning_rate": 1e-4}}}},
}


@pytest.mark.slow
def test_prompts_that_are_trained_on_are_called_so_everywhere(groupwise, tmp_path: Path):
    (tmp_path / "digits.json").write_text(json.dumps(EXPERIMENT))
    ended = groupwise("train", "digits.json", "--out", "run")
    assert ended.status == 0, ended
    assert "step 0/1  ode/reward on training prompts" in ended.out
    assert "\nOde/reward on training prompts: " in ended.out
    assert "control more: ode/reward on training prompts" in ended.out
    assert "95 % over 3 training prompts" in ended.out or "each of 3 training prompts" in ended.out
    evaluated = groupwise("evaluate", "run")
    assert "run on the training prompts of " in evaluated.out
    assert groupwise("export", "run", "--out", "exported").status == 0
    assert "| | ode/reward on training prompts |" in (tmp_path / "exported" / "README.md").read_text()
    assert groupwise("report", "run", "--out", "report.html").status == 0
    page = (tmp_path / "report.html").read_text()
    assert "<code>ode/reward</code> on training prompts" in page
    assert "Training prompts: " in page
    assert "Ode/reward on training prompts (decides)" in page
    compared = groupwise("compare", "digits.json", "--seeds", "1", "--out", "compared")
    assert compared.status == 0, compared
    assert "Ode/reward on training prompts" in compared.out
    assert "<code>ode/reward</code> on training prompts" in (tmp_path / "compared" / "compare.html").read_text()
    everything = [ended.out, evaluated.out, compared.out, page.replace("num_held_out", "").replace("HELD_OUT", "")]
    assert not [text for text in everything if "eld-out" in text]


def test_an_image_that_lies_in_the_folder_twice_is_counted(groupwise, tmp_path: Path):
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (8, 8), dtype=np.uint8) for _ in range(6)]
    # Of the two in the middle, which are held out, one is a copy of a training image.
    for number, each in enumerate([pixels[0], pixels[1], pixels[2], pixels[3], pixels[0], pixels[5]]):
        Image.fromarray(each).save(tmp_path / "images" / f"image{number}.png")
    text = DIGITS.replace(
        'kind = "digits"\nnum_train = 12', 'kind = "folder"\nclean = "images"\nchannels = 1\nnum_held_out = 2'
    )
    (tmp_path / "folder.toml").write_text(text)
    ended = groupwise("train", "folder.toml", "--out", "run")
    assert ended.status == 0, ended
    assert "on evaluation prompts (1 of 2 trained on): " in ended.out
