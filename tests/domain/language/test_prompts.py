from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat, build_tokenizer
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.data import tokenize
from groupwise.domain.language.environment import CallableEnvironment
from groupwise.domain.protocol import Prompt

PROMPTS = [Prompt(key, {"prompt": text}) for key, text in (("short", "a b"), ("long", "a b c d e"), ("empty", ""))]


@pytest.fixture
def chat():
    return Chat(build_tokenizer("words", ["a b c d e"]), ChatConfig())


def test_longer_prompts_are_an_error_dropped_or_cut_on_the_left(chat):
    a = chat.tokenizer.convert_tokens_to_ids("a")
    with pytest.raises(ConfigError, match=r"the prompt 'a b c d e' has 5 tokens and there is room for 3"):
        tokenize(PROMPTS[:2], chat, None, 3, "error")
    dropped = tokenize(PROMPTS[:2], chat, None, 3, "drop")
    assert [prompt.key for prompt in dropped.prompts] == ["short"]
    assert (dropped.num_dropped, dropped.num_truncated) == (1, 0)
    cut = tokenize(PROMPTS[:2], chat, None, 3, "truncate")
    assert cut.ids == {"short": [a, a + 1], "long": [a + 2, a + 3, a + 4]}
    assert (cut.num_dropped, cut.num_truncated) == (0, 1)
    with pytest.raises(ConfigError, match=r"all 1 prompts are longer than 3 tokens"):
        tokenize(PROMPTS[1:2], chat, None, 3, "drop")


def test_a_prompt_of_no_tokens_is_an_error(chat):
    with pytest.raises(ConfigError, match=r"has no tokens"):
        tokenize(PROMPTS, chat, None, None, "error")


class Opens:
    def reset(self, columns):
        return "d e"

    def step(self, action):
        return "", None, True


def test_what_an_environment_says_first_belongs_to_the_prompt(chat):
    found = tokenize(PROMPTS[:1], chat, CallableEnvironment(path=f"{__name__}:Opens"), None, "error")
    assert chat.tokenizer.decode(found.ids["short"]) == "a b d e"
