"""Nothing trained on is called held-out: not while a run goes on, at its end, by evaluate, on the card, on a page or in
a comparison.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.test_restored import DIGITS
from tests.images.diffusion.small import TABLE

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


def test_held_out_prompts_keep_the_word(groupwise, finished: Path, tmp_path: Path):
    starts = json.loads((finished / "environment.json").read_text())["starts"]
    assert starts[-1]["evaluated_on"]["num_trained"] == 0
    assert starts[-1]["evaluated_on"]["num"] > 0
    assert groupwise("export", finished, "--out", tmp_path / "sorter").status == 0
    assert " on held-out prompts |" in (tmp_path / "sorter" / "README.md").read_text()
