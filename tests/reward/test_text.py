"""Texts of chats."""

from __future__ import annotations

from groupwise.reward.completions import completion_text, prompt_text


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


def test_prompts() -> None:
    assert prompt_text([{"role": "user", "content": "2 + 2?"}]) == "2 + 2?"
    assert (
        prompt_text(
            [
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}]},
                {"role": "assistant", "content": "b"},
            ]
        )
        == "user: a\nassistant: b"
    )
