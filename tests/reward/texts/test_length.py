"""Source 003's length reward."""

from __future__ import annotations

import pytest

from groupwise.reward import Length


def test_default_target_is_fifty_words() -> None:
    # 1 - |40 - 50| / 50, 1 - 0, 1 - |75 - 50| / 50, and 0 from a hundred words on.
    texts = ["w " * 40, "w " * 50, "w " * 75, "w " * 100, "w " * 130]
    assert Length()([""] * 5, texts) == pytest.approx([0.8, 1.0, 0.5, 0.0, 0.0])


def test_characters_for_text_without_spaces() -> None:
    assert Length(target=4, unit="characters")([""] * 2, ["你好世界", "你好"]) == [1.0, 0.5]
    assert Length(target=4)([""], ["你好世界"]) == [0.25]
