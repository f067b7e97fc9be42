"""What one reward changes in place reaches no other reward, no record and no row of the caller."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import torch
from PIL import Image

from groupwise.reward import Reward, Rewards
from groupwise.reward.scoring.score import own_copy


def test_every_depth_is_copied_and_what_is_shared_is_copied_once() -> None:
    row = {"a": [1, {2}], "b": (bytearray(b"x"), [3]), "c": Counter("ab"), "d": np.zeros(2), "e": torch.zeros(2)}
    row["self"] = row
    copied, again = own_copy([row, row])
    assert copied is again
    assert copied["self"] is copied
    assert all(copied[key] is not row[key] for key in row)
    assert copied["a"][1] is not row["a"][1]
    assert copied["b"][0] is not row["b"][0]
    assert type(copied["c"]) is Counter
    picture, words = Image.new("L", (2, 2)), ["a"] * 3
    assert own_copy(picture) is not picture
    assert own_copy(words) == words
    assert own_copy(words) is not words


class Inverting(Reward):
    """A configured reward of another package."""

    kind: str = "inverting"

    def __call__(self, prompts: Any, completions: Any, **columns: Any) -> list[float]:
        return spoil(prompts, completions, **columns)


def spoil(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    for picture, target, tags in zip(completions, columns["clean"], columns["tags"], strict=True):
        picture.zero_()
        target[:] = 0
        tags["words"].clear()
    prompts[0].append({"role": "user", "content": "changed"})
    return [0.0] * len(completions)


def test_no_reward_sees_what_another_changed() -> None:
    spoiled = threading.Event()

    def first(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        values = spoil(prompts, completions, **columns)
        spoiled.set()
        return values

    def second(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        assert spoiled.wait(60)
        words = [len(tags["words"]) for tags in columns["tags"]]
        return [
            float(picture.float().mean() + target.mean()) + count + len(prompts[0])
            for picture, target, count in zip(completions, columns["clean"], words, strict=True)
        ]

    pictures = [torch.full((4, 4), 100, dtype=torch.uint8) for _ in range(2)]
    columns = {"clean": [np.full(2, 10.0)] * 2, "tags": [{"words": ["a"]}] * 2}
    prompts = [[{"role": "user", "content": "a cat"}]] * 2
    with Rewards({"first": first, "kind": Inverting(), "second": second}) as rewards:
        assert rewards.score(prompts, pictures, columns).values["second"] == [112.0, 112.0]
    assert [int(picture.min()) for picture in pictures] == [100, 100]
    assert columns["tags"][0]["words"] == ["a"]
    assert [len(prompt) for prompt in prompts] == [1, 1]
