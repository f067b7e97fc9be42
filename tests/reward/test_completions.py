"""The form of completions: messages where prompts are messages, as TRL gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from groupwise.reward import CallableReward, RewardError, Rewards, RewardTable, score
from groupwise.reward.completions import Content, completion_text, in_form
from groupwise.reward.image import as_array, as_pil

CHATS = [[{"role": "user", "content": "2 + 2?"}], [{"role": "user", "content": "3 + 5?"}]]
TEXTS = ["4", "<think>8</think>8"]
MESSAGES = [[{"role": "assistant", "content": text}] for text in TEXTS]


class Recorder:
    """A reward that remembers what it was given."""

    def __init__(self, **attributes: Any) -> None:
        self.seen: list[Any] = []
        vars(self).update(attributes)

    def __call__(self, completions: list[Any], **columns: Any) -> list[float]:
        self.seen = completions
        return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("prompts", "attributes", "expected"),
    [
        (CHATS, {}, MESSAGES),
        (["a", "b"], {}, TEXTS),
        (CHATS, {"completions": "text"}, TEXTS),
        (["a", "b"], {"completions": "messages"}, MESSAGES),
        (["a", CHATS[0]], {}, [TEXTS[0], MESSAGES[1]]),
    ],
)
def test_the_prompts_decide_unless_the_reward_says(prompts: Any, attributes: Any, expected: Any) -> None:
    recorder = Recorder(**attributes)
    score({"recorder": recorder}, prompts, TEXTS)
    assert recorder.seen == expected


def test_a_conversation_stays_whole_and_its_text_is_the_last_turn() -> None:
    conversation = [*MESSAGES[0], {"role": "user", "content": "higher"}, {"role": "assistant", "content": "9"}]
    assert in_form(["a"], [conversation], None) == [conversation]
    assert in_form(["a"], [conversation], "text") == ["9"]


def test_images_stay_images() -> None:
    image = np.zeros((2, 2), dtype="uint8")
    assert in_form(CHATS[:1], [image], "messages")[0] is image


def test_one_member_a_call_reads_texts_unless_it_asks_for_messages() -> None:
    path = "tests.reward.test_completions:right"
    each = CallableReward(path=path, each=True)  # type: ignore[arg-type]
    assert score({"each": each}, CHATS, TEXTS).values["each"] == [1.0, 17.0]
    messages = each.model_copy(update={"completions": "messages"})
    assert score({"each": messages}, CHATS, TEXTS).values["each"] == [1.0, 1.0]


def right(prompt: str, completion: Any, **columns: Any) -> float:
    return float(len(completion))


def shipped(completions: list[Any], **columns: Any) -> list[float]:
    return [float(completion[0]["content"] == "4") for completion in completions]


def stripped(completions: list[Any], **columns: Any) -> list[float]:
    return [float(completion.strip() == "4") for completion in completions]


def test_an_error_of_the_other_form_says_both_and_what_to_write() -> None:
    with pytest.raises(
        RewardError, match=r'completions were texts \("..."\): .* write completions = "messages"'
    ) as told:
        score({"x": shipped}, ["a", "b"], TEXTS)
    # Missing values for ever are no remedy.
    assert "on_error" not in str(told.value)
    assert "\n" not in str(told.value)
    with pytest.raises(RewardError, match=r'completions were lists of messages .* write completions = "text"'):
        score({"x": stripped}, CHATS, TEXTS)


def test_another_form_is_refused() -> None:
    with pytest.raises(RewardError, match="reward 'x': completions = 'chat' is no form of completions; write 'text'"):
        Rewards({"x": Recorder(completions="chat")})


# What is kept of a completion beside its reward.


def test_a_text_and_the_message_that_holds_it_are_the_same_content() -> None:
    message = [{"role": "assistant", "content": "one two"}]
    assert Content.of("one two") == Content.of(message) != Content.of("one  two")
    assert Content.of(IMAGES[0]) == Content.of(IMAGES[0].clone()) != Content.of(IMAGES[1])


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


# Texts of chats.


def test_the_last_assistant_message_is_the_completion() -> None:
    chat = [
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "last"},
    ]
    assert completion_text(chat) == "last"
    assert completion_text([{"content": "no role"}]) == "no role"
    assert completion_text([{"role": "user", "content": "only the user"}]) == ""
    assert completion_text([{"role": "assistant", "content": None, "tool_calls": []}]) == ""
    assert completion_text([]) == ""


# Images among completions.


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


def level_or_raise(prompt: str, image: torch.Tensor) -> float:
    if int(image.max()) == 0:
        raise ArithmeticError("a black image")
    return float(image.max())


IMAGES = [torch.full((4, 4), level, dtype=torch.uint8) for level in (10, 0, 30)]


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
