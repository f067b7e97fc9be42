from __future__ import annotations

import json
from pathlib import Path

from groupwise_images.diffusion.config import DataConfig
from groupwise_images.diffusion.source import DigitPrompts as Digits
from groupwise_images.diffusion.source import PromptFile
from groupwise_images.diffusion.splits import split


def prompts(folder: Path, count: int) -> PromptFile:
    file = folder / "prompts.txt"
    file.write_text("\n".join(f"prompt {number}" for number in range(count)))
    return PromptFile(path=str(file))


def test_what_is_held_out_is_never_trained_on(tmp_path: Path) -> None:
    found = split(DataConfig(source=prompts(tmp_path, 20), num_held_out=5))
    train, held_out = ({prompt.key for prompt in part} for part in (found.train, found.evaluated))
    assert (len(train), len(held_out)) == (15, 5)
    assert not train & held_out
    again = split(DataConfig(source=prompts(tmp_path, 20), num_held_out=5))
    assert [prompt.key for prompt in again.evaluated] == [prompt.key for prompt in found.evaluated]
    other = split(DataConfig(source=prompts(tmp_path, 20), num_held_out=5, seed=1))
    assert {prompt.key for prompt in other.evaluated} != held_out


def test_nothing_held_out_evaluates_what_is_trained() -> None:
    found = split(DataConfig(source=Digits(), num_train=4))
    assert list(found.evaluated) == list(found.train)
    assert [prompt.columns["label"] for prompt in found.train] == [0, 1, 2, 3]
    assert found.images is not None
    assert len(found.image_prompts) == len(found.images)


def test_what_asks_the_same_in_other_columns_is_held_out_with_it(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": f"prompt {number // 2}", "style": number % 2}) + "\n" for number in range(40))
    )
    found = split(DataConfig(source=PromptFile(path=str(file)), num_held_out=5))
    train, held_out = ({prompt.columns["prompt"] for prompt in part} for part in (found.train, found.evaluated))
    assert held_out
    assert not train & held_out


def test_images_of_what_is_held_out_are_not_learnt_from() -> None:
    found = split(DataConfig(source=Digits(), num_held_out=3))
    held_out = {prompt.columns["prompt"] for prompt in found.evaluated}
    assert found.images is not None
    assert 0 < len(found.images) == len(found.image_prompts) < 1797
    assert not held_out & {prompt.columns["prompt"] for prompt in found.image_prompts}
