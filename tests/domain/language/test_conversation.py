from __future__ import annotations

import pytest

from groupwise.domain.language.chat import Chat, Conversations, build_tokenizer
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.environment import CallableEnvironment, GuessTheNumber


@pytest.fixture
def chat():
    return Chat(
        build_tokenizer("words", ["between 1 and 9 ?", "1 2 3 4 5 6 7 8 9", "higher", "lower", "number ?"]),
        ChatConfig(),
    )


def test_every_member_has_a_game_of_its_own(chat):
    eos = chat.tokenizer.eos_token_id
    columns = [{"prompt": "between 1 and 9 ?", "secret": secret} for secret in (7, 3)]
    talk = Conversations(GuessTheNumber(num_guesses=2), columns, chat, [eos], max_new_tokens=20)
    say = lambda text: [*chat.encode_text(text), eos]  # noqa: E731
    assert chat.tokenizer.decode(talk.answer(0, say("5"))) == "higher"
    assert chat.tokenizer.decode(talk.answer(1, say("5"))) == "lower"
    assert talk.answer(0, say("7")) is None
    assert talk.answer(1, say("4")) is None
    assert talk.rewards == [1.0, 0.0]
    assert talk.messages[0] == [
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "higher"},
        {"role": "assistant", "content": "7"},
    ]


def test_an_answer_that_leaves_no_room_ends_the_conversation(chat):
    eos = chat.tokenizer.eos_token_id
    talk = Conversations(
        GuessTheNumber(), [{"prompt": "between 1 and 9 ?", "secret": 7}], chat, [eos], max_new_tokens=3
    )
    # Two tokens of its own and one of the answer: the next guess would not fit.
    assert talk.answer(0, [*chat.encode_text("5"), eos]) is None
    assert talk.rewards == [None]


class Pays:
    def __init__(self):
        self.turn = 0

    def reset(self, columns):
        return ""

    def step(self, action):
        self.turn += 1
        if action == "9":
            raise RuntimeError("broken")
        return "higher", 0.25 if self.turn < 3 else None, self.turn == 3


def test_rewards_of_turns_add_up_and_a_failure_says_where(chat):
    columns = [{"prompt": "between 1 and 9 ?"}] * 2
    talk = Conversations(CallableEnvironment(path=f"{__name__}:Pays"), columns, chat, [1], max_new_tokens=50)
    assert [talk.answer(0, chat.encode_text(guess)) is None for guess in "123"] == [False, False, True]
    assert talk.rewards == [0.5, None]
    with pytest.raises(RuntimeError) as error:
        talk.answer(1, chat.encode_text("9"))
    assert "raised in member 1 on the turn '9'" in error.value.__notes__[0]


def test_conversations_that_begin_again_have_said_nothing(chat):
    columns = [{"prompt": "between 1 and 9 ?"}]
    talk = Conversations(CallableEnvironment(path=f"{__name__}:Pays"), columns, chat, [1], max_new_tokens=6)
    first = [talk.answer(0, chat.encode_text(guess)) for guess in "12"]
    said = list(talk.messages[0])
    talk.begin()
    assert [talk.answer(0, chat.encode_text(guess)) for guess in "12"] == first
    assert (talk.messages, talk.rewards) == ([said], [0.5])
