"""Images among completions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from groupwise.reward import CallableReward, RewardError, Rewards
from groupwise.reward.image import as_array, as_pil
from groupwise_images.reward.jpeg_size import JpegSize


def test_grey_colour_numpy_and_pil_are_the_same_image() -> None:
    grey = torch.tensor([[0, 50], [100, 255]], dtype=torch.uint8)
    expected = np.stack([grey.numpy()] * 3, axis=2)
    for image in (grey, grey[:, :, None], grey.numpy(), Image.fromarray(grey.numpy()), torch.from_numpy(expected)):
        assert np.array_equal(as_array(image), expected)
        assert np.array_equal(np.asarray(as_pil(image)), expected)


@pytest.mark.parametrize(
    "wrong",
    [torch.zeros(2, 2), torch.zeros(2, 2, 4, dtype=torch.uint8), torch.zeros(0, 2, dtype=torch.uint8), "text", None],
)
def test_what_is_no_image_is_named(wrong: object) -> None:
    with pytest.raises(RewardError, match=r"torch\.uint8 tensor"):
        as_array(wrong)


def mean_level(completions: list[torch.Tensor], **columns: object) -> list[float]:
    return [float(image.float().mean()) for image in completions]


def level_or_raise(prompt: str, image: torch.Tensor) -> float:
    if int(image.max()) == 0:
        raise ArithmeticError("a black image")
    return float(image.max())


def two(completions: list[torch.Tensor]) -> list[float]:
    return [1.0, 2.0]


IMAGES = [torch.full((4, 4), level, dtype=torch.uint8) for level in (10, 0, 30)]


def test_a_plain_function_is_given_images_as_completions() -> None:
    with Rewards({"level": mean_level}) as rewards:
        assert rewards.score(["a"] * 3, IMAGES).values["level"] == [10.0, 0.0, 30.0]


def test_one_image_that_raises_is_one_bad_member_and_the_others_keep_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import groupwise.reward.callable as room

    monkeypatch.setattr(room, "user_callable", lambda path, group, write: level_or_raise)
    with Rewards({"level": CallableReward(path="mine:level", each=True, on_error="missing")}) as rewards:
        table = rewards.score(["a"] * 3, IMAGES)
    assert table.values["level"] == [10.0, None, 30.0]
    assert [(event.name, event.member, event.detail) for event in table.events] == [
        ("error", 1, "ArithmeticError: a black image")
    ]
    with (
        Rewards({"level": CallableReward(path="mine:level", each=True)}) as rewards,
        pytest.raises(RewardError, match=r"'level' raised .*a black image"),
    ):
        rewards.score(["a"] * 3, IMAGES)


def test_a_wrong_number_of_values_is_an_error_that_says_so() -> None:
    with Rewards({"two": two}) as rewards, pytest.raises(RewardError, match="'two' returned 2 values for 3 members"):
        rewards.score(["a"] * 3, IMAGES)


def test_a_reward_of_ours_counts_the_image_that_it_cannot_read() -> None:
    broken = [IMAGES[0], torch.zeros(2, 2), IMAGES[2]]
    with Rewards({"size": JpegSize(on_error="missing")}) as rewards:
        table = rewards.score([""] * 3, broken)
    assert table.values["size"][1] is None
    assert None not in (table.values["size"][0], table.values["size"][2])
    with Rewards({"size": JpegSize()}) as rewards, pytest.raises(RewardError, match="float32"):
        rewards.score([""] * 3, broken)
