"""Prompts, turns and answers as tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat, Conversations, build_tokenizer, token_texts
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.data import tokenize
from groupwise.domain.language.environment import CallableEnvironment, GuessTheNumber
from groupwise.domain.protocol import Prompt

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if mood is defined %}({{ mood }}){% endif %}{% endif %}"
)


@pytest.fixture
def tokenizer():
    made = build_tokenizer(
        "characters", ["[]()<|end|>\n system user assistant tool Be brief. 2 + 2? 4 result ab happy X!"]
    )
    made.chat_template = TEMPLATE
    return made


def written(tokenizer, ids):
    return tokenizer.decode(ids)


def test_messages_are_rendered_and_keep_their_own_system_message(tokenizer):
    chat = Chat(tokenizer, ChatConfig(system="Be brief."))
    messages = [{"role": "system", "content": "happy"}, {"role": "user", "content": "ab"}]
    assert written(tokenizer, chat.encode_prompt(messages)) == "[system]happy<|end|>\n[user]ab<|end|>\n[assistant]"


def test_parts_of_text_are_one_text(tokenizer):
    parts = [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]
    ids = Chat(tokenizer, ChatConfig()).encode_prompt([{"role": "user", "content": parts}])
    assert written(tokenizer, ids) == "[user]2 + 2?<|end|>\n[assistant]"


def test_a_reply_is_what_the_template_writes_after_the_policys_turn(tokenizer):
    chat = Chat(tokenizer, ChatConfig(reply_role="tool"))
    messages = [{"role": "user", "content": "ab"}]
    # The policy wrote the end token itself: the template's must not stand there twice.
    assert (
        written(tokenizer, chat.encode_reply(messages, [chat.reply_message("4")], tokenizer.eos_token_id))
        == "\n[tool]4<|end|>\n[assistant]"
    )
    assert (
        written(tokenizer, chat.encode_reply(messages, [chat.reply_message("4")], None))
        == "<|end|>\n[tool]4<|end|>\n[assistant]"
    )
    text = chat.encode_reply("2 + 2?", [chat.reply_message(" result 4 ")], tokenizer.eos_token_id)
    assert written(tokenizer, text) == " result 4 "


def test_an_end_of_turn_that_is_not_the_tokenizers_eos_token_stands_once(tokenizer):
    # As in Gemma's folders: generation_config.json names <end_of_turn>, tokenizer_config.json <eos>.
    end_of_turn = tokenizer.eos_token_id
    tokenizer.add_special_tokens({"eos_token": "<eos>"})
    chat = Chat(tokenizer, ChatConfig(reply_role="tool"))
    messages = [{"role": "user", "content": "ab"}]
    after_turn = written(tokenizer, chat.encode_reply(messages, [chat.reply_message("4")], end_of_turn))
    assert after_turn == "\n[tool]4<|end|>\n[assistant]"
    after_text = written(tokenizer, chat.encode_reply(messages, [chat.reply_message("4")], tokenizer.eos_token_id))
    assert after_text == "<|end|>\n[tool]4<|end|>\n[assistant]"


def test_a_turn_that_ends_where_sampling_does_not_is_said(tokenizer):
    end_of_turn = tokenizer.eos_token_id
    tokenizer.add_special_tokens({"eos_token": "<eos>"})
    chat = Chat(tokenizer, ChatConfig())
    asked = [[{"role": "user", "content": "ab"}]]
    (said,) = chat.remarks_of_ends(asked, [tokenizer.eos_token_id])
    assert "ends a turn with '<|end|>', and sampling goes on behind it (it ends at '<eos>')" in said
    assert f"add {end_of_turn} to eos_token_id in generation_config.json" in said
    assert chat.remarks_of_ends(asked, [end_of_turn, tokenizer.eos_token_id]) == []
    assert chat.remarks_of_ends(["2 + 2?"], [tokenizer.eos_token_id]) == []


def test_a_tokenizer_without_chat_template_is_refused(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match=r"chat.use = 'always', but the tokenizer of this model has no chat template"):
        Chat(tokenizer, ChatConfig(use="always"))
    with pytest.raises(ConfigError, match=r"a prompt is a list of messages, but"):
        Chat(tokenizer, ChatConfig()).encode_prompt([{"role": "user", "content": "a"}])
    with pytest.raises(ConfigError, match=r"chat.use = 'never'"):
        Chat(tokenizer, ChatConfig(use="never")).encode_prompt([{"role": "user", "content": "a"}])


def test_a_begun_answer_is_continued_and_the_conversation_goes_on_after_it(tokenizer):
    chat = Chat(tokenizer, ChatConfig(reply_role="tool"))
    messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "4 "}]
    assert written(tokenizer, chat.encode_prompt(messages)) == "[user]ab<|end|>\n[assistant]4 "
    twice = "{% if loop.index > 1 and message.role == loop.previtem.role %}{{ raise_exception('twice') }}{% endif %}"
    tokenizer.chat_template = TEMPLATE.replace("{% for message in messages %}", "{% for message in messages %}" + twice)
    reply = chat.encode_reply(messages, [chat.reply_message("4")], None)
    assert written(tokenizer, reply) == "<|end|>\n[tool]4<|end|>\n[assistant]"


# Conversation.


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


# Prompts.


PROMPTS = [Prompt(key, {"prompt": text}) for key, text in (("short", "a b"), ("long", "a b c d e"), ("empty", ""))]


@pytest.fixture
def chat_of_prompts():
    return Chat(build_tokenizer("words", ["a b c d e"]), ChatConfig())


def test_longer_prompts_are_an_error_dropped_or_cut_on_the_left(chat_of_prompts):
    a = chat_of_prompts.tokenizer.convert_tokens_to_ids("a")
    with pytest.raises(ConfigError, match=r"the prompt 'a b c d e' has 5 tokens and there is room for 3"):
        tokenize(PROMPTS[:2], chat_of_prompts, None, 3, "error")
    dropped = tokenize(PROMPTS[:2], chat_of_prompts, None, 3, "drop")
    assert [prompt.key for prompt in dropped.prompts] == ["short"]
    assert (dropped.num_dropped, dropped.num_truncated) == (1, 0)
    cut = tokenize(PROMPTS[:2], chat_of_prompts, None, 3, "truncate")
    assert cut.ids == {"short": [a, a + 1], "long": [a + 2, a + 3, a + 4]}
    assert (cut.num_dropped, cut.num_truncated) == (0, 1)
    with pytest.raises(ConfigError, match=r"all 1 prompts are longer than 3 tokens"):
        tokenize(PROMPTS[1:2], chat_of_prompts, None, 3, "drop")


class Opens:
    def reset(self, columns):
        return "d e"

    def step(self, action):
        return "", None, True


def test_what_an_environment_says_first_belongs_to_the_prompt(chat_of_prompts):
    found = tokenize(PROMPTS[:1], chat_of_prompts, CallableEnvironment(path=f"{__name__}:Opens"), None, "error")
    assert chat_of_prompts.tokenizer.decode(found.ids["short"]) == "a b d e"


# Token texts.


def test_the_space_before_a_word_stays() -> None:
    tokenizer = Tokenizer(models.WordLevel({"\u2581two": 0, "\u2581words": 1, "s": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.decoder = decoders.Metaspace()  # type: ignore[assignment]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert fast.decode([0]) == "two", "what decoding alone loses"
    assert token_texts(fast, [[0, 1, 2]]) == [[" two", " words", "s"]]


# Tokenizer.


@pytest.mark.parametrize("kind", ["pieces", "characters"])
@given(text=st.text(st.characters(max_codepoint=0x2FF, exclude_categories=("Cs", "Cc")), max_size=40))
@settings(max_examples=30, deadline=None)
def test_pieces_and_characters_lose_nothing(kind, text):
    tokenizer = build_tokenizer(kind, [text])
    ids = tokenizer.encode(text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text


def test_the_vocabulary_does_not_depend_on_order_and_special_tokens_are_apart():
    first, second = build_tokenizer("words", ["b a", "c"]), build_tokenizer("words", ["c", "a b", "a"])
    assert first.get_vocab() == second.get_vocab()
    letters = "qwertyuiopasdfghjkl"
    found = build_tokenizer("characters", [letters]).get_vocab()
    assert [found[letter] for letter in sorted(letters)] == list(range(3, 3 + len(letters)))
    assert (first.pad_token_id, first.eos_token_id, first.unk_token_id) == (0, 1, 2)
    assert first.decode([*first.encode("a b"), first.eos_token_id], skip_special_tokens=True) == "a b"


@pytest.mark.parametrize("kind", ["words", "pieces", "characters"])
def test_a_saved_tokenizer_is_the_same_elsewhere(kind, tmp_path):
    tokenizer = build_tokenizer(kind, ["ball 3 swap, <answer>1-4</answer> ?"])
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "ball 3 ? <answer>1-4</answer>" if kind != "words" else "ball 3 ?"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(text)) == text
