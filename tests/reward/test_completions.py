"""The form of completions: messages where prompts are messages, as TRL gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.reward import CallableReward, RewardError, Rewards, score
from groupwise.reward.completions import in_form

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


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_error_of_the_other_form_says_both_and_what_to_write(isolation: str) -> None:
    def reward(name: str) -> CallableReward:
        return CallableReward(path=f"tests.reward.test_completions:{name}", isolation=isolation)  # type: ignore[arg-type]

    with pytest.raises(
        RewardError, match=r'completions were texts \("..."\): .* write completions = "messages"'
    ) as told:
        score({"x": reward("shipped")}, ["a", "b"], TEXTS)
    # Missing values for ever are no remedy.
    assert "on_error" not in str(told.value)
    assert "\n" not in str(told.value)
    with pytest.raises(RewardError, match=r'completions were lists of messages .* write completions = "text"'):
        score({"x": reward("stripped")}, CHATS, TEXTS)


def test_another_error_keeps_its_advice() -> None:
    def fails(completions: list[str]) -> list[float]:
        raise ValueError("no connection")

    with pytest.raises(RewardError, match=r'no connection.*on_error = "missing"') as told:
        score({"x": fails}, ["a", "b"], TEXTS)
    assert "completions were" not in str(told.value)


def test_another_form_is_refused() -> None:
    with pytest.raises(RewardError, match="reward 'x': completions = 'chat' is no form of completions; write 'text'"):
        Rewards({"x": Recorder(completions="chat")})
