from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat, build_tokenizer
from groupwise.domain.language.config import ChatConfig

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


def test_texts_stay_texts_unless_the_template_is_always_used(tokenizer):
    assert written(tokenizer, Chat(tokenizer, ChatConfig()).encode_prompt("2 + 2?")) == "2 + 2?"
    always = Chat(tokenizer, ChatConfig(use="always", system="Be brief.", template_arguments={"mood": "happy"}))
    assert (
        written(tokenizer, always.encode_prompt("2 + 2?"))
        == "[system]Be brief.<|end|>\n[user]2 + 2?<|end|>\n[assistant](happy)"
    )


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


def test_a_tokenizer_without_chat_template_is_refused(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match=r"chat.use = 'always', but the tokenizer of this model has no chat template"):
        Chat(tokenizer, ChatConfig(use="always"))
    with pytest.raises(ConfigError, match=r"a prompt is a list of messages, but"):
        Chat(tokenizer, ChatConfig()).encode_prompt([{"role": "user", "content": "a"}])
    with pytest.raises(ConfigError, match=r"chat.use = 'never'"):
        Chat(tokenizer, ChatConfig(use="never")).encode_prompt([{"role": "user", "content": "a"}])


def test_a_template_that_refuses_says_what_it_was_given(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('no system here') }}"
    with pytest.raises(ConfigError, match=r"refuses .*no system here"):
        Chat(tokenizer, ChatConfig()).encode_prompt([{"role": "user", "content": "a"}])


def test_a_begun_answer_is_continued_and_the_conversation_goes_on_after_it(tokenizer):
    chat = Chat(tokenizer, ChatConfig(reply_role="tool"))
    messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "4 "}]
    assert written(tokenizer, chat.encode_prompt(messages)) == "[user]ab<|end|>\n[assistant]4 "
    twice = "{% if loop.index > 1 and message.role == loop.previtem.role %}{{ raise_exception('twice') }}{% endif %}"
    tokenizer.chat_template = TEMPLATE.replace("{% for message in messages %}", "{% for message in messages %}" + twice)
    reply = chat.encode_reply(messages, [chat.reply_message("4")], None)
    assert written(tokenizer, reply) == "<|end|>\n[tool]4<|end|>\n[assistant]"
