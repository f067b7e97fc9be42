"""What is kept of a completion beside its reward."""

from __future__ import annotations

import torch

from groupwise.reward import RewardTable
from groupwise.reward.completions import Content
from groupwise.reward.scoring.score import Rewards


def test_a_text_and_the_message_that_holds_it_are_the_same_content() -> None:
    message = [{"role": "assistant", "content": "one two"}]
    assert Content.of("one two") == Content.of(message) != Content.of("one  two")


def test_images_are_told_apart_by_a_single_grey_level() -> None:
    image = torch.zeros(4, 4, dtype=torch.uint8)
    other = image.clone()
    other[3, 3] = 1
    assert Content.of(image) == Content.of(image.clone()) != Content.of(other)
    assert Content.of(image).repetition is None


def test_a_text_that_cannot_be_encoded_has_a_content() -> None:
    assert Content.of("\ud800 a b c").repetition == 0.0


def test_tables_carry_contents_through_select_and_concatenate() -> None:
    with Rewards({"length": lambda completions, **columns: [float(len(text)) for text in completions]}) as rewards:
        table = rewards.score(["p"] * 3, ["a", "b", "a"])
    digests = [content.digest for content in table.contents]
    assert digests[0] == digests[2] != digests[1]
    assert [content.digest for content in table.select([1, 2]).contents] == digests[1:]
    joined = RewardTable.concatenate([table, table.select([0])])
    assert [content.digest for content in joined.contents] == [*digests, digests[0]]
    # Of one table nothing is known, so that nothing can be said of all.
    assert RewardTable.concatenate([table, RewardTable({"length": [1.0]})]).contents == ()
