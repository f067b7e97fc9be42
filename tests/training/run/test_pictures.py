"""Images among records: written beside them, found again by their place, removed with the step they belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from groupwise.runs import RunFolder
from groupwise.training.run.rollout_records import with_files, write_pictures
from groupwise.training.run.run_folder import forget_after, write_records


def test_an_image_is_the_same_when_it_is_read_again(tmp_path: Path):
    grey = torch.arange(12, dtype=torch.uint8).view(3, 4)
    colour = torch.arange(36, dtype=torch.uint8).view(3, 4, 3)
    files = write_pictures(tmp_path / "new", {"grey": grey, "colour": colour})
    assert [file.name for file in files] == ["grey.png", "colour.png"]
    assert np.array_equal(np.asarray(Image.open(files[0])), grey.numpy())
    assert np.array_equal(np.asarray(Image.open(files[1])), colour.numpy())


def test_records_hold_places_relative_to_the_run_folder(tmp_path: Path):
    image = torch.full((2, 2), 7, dtype=torch.uint8)
    records = with_files(
        [{"key": "a", "image": image}, {"key": "b"}], tmp_path / "rollouts" / "step-3" / "members", tmp_path
    )
    assert records == [{"key": "a", "image": "rollouts/step-3/members/0-image.png"}, {"key": "b"}]
    assert np.array_equal(np.asarray(Image.open(tmp_path / records[0]["image"])), image.numpy())


@pytest.mark.parametrize(
    "picture", [torch.zeros(2, 2), torch.zeros(3, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.uint8)]
)
def test_another_type_or_shape_is_named(tmp_path: Path, picture: torch.Tensor):
    with pytest.raises(ValueError, match=r"picture 'grid': torch.*\(2.*|picture 'grid': torch.uint8 \(3, 2, 2\)"):
        write_pictures(tmp_path, {"grid": picture})


def test_a_resumed_run_forgets_pictures_of_later_steps(tmp_path: Path):
    folder, image = RunFolder(tmp_path), torch.zeros(2, 2, dtype=torch.uint8)
    for step in (2, 4):
        write_pictures(folder.evaluation_at(step).with_suffix(""), {"grid": image})
        write_records(folder.evaluation_at(step), [])
    forget_after(folder, 2)
    assert sorted(path.name for path in folder.rollouts.iterdir()) == ["evaluation-2", "evaluation-2.jsonl"]
