"""Tools by the chat template, from the prompt to the loss."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.domain.language.calling_model import CALL, add, calling_model, calling_tokenizer

import groupwise
from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat, Conversations
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.environment import ChatTools
from groupwise.track import read_metrics

HERE = "tests.domain.language.calling_model"
QUESTION = [{"role": "user", "content": "2 plus 3 ?"}]


def correct(completions, answer):
    return [float(messages[-1]["content"] == f"answer {right}") for messages, right in zip(completions, answer)]


def run(tmp_path: Path, tool: Any, **changes: Any) -> Any:
    model, tokenizer = calling_model()
    return groupwise.train(
        (model, tokenizer),
        tools=[tool],
        rewards=correct,
        data=[{"prompt": [{"role": "user", "content": f"2 plus {b} ?"}], "answer": "5"} for b in (3, 2, 4)],
        out=tmp_path / "run",
        **{
            "method": "dr_grpo",
            "train.num_steps": 2,
            "train.prompts_per_step": 2,
            "domain.sampling.max_new_tokens": 24,
            "domain.data.num_held_out": 1,
            **changes,
        },
    )


def members(folder: Any) -> list[dict[str, Any]]:
    lines = [line for file in sorted(folder.rollouts.iterdir()) for line in file.read_text().splitlines()]
    return [member for line in lines for member in json.loads(line).get("members", [json.loads(line)])]


def test_a_model_calls_a_tool_and_learns_from_what_it_wrote_alone(tmp_path):
    finished = run(tmp_path, add)
    called = [member for member in members(finished.folder) if len(member.get("messages", ())) == 3]
    assert called, "the model was taught to call"
    arguments = {"name": "add", "arguments": {"a": 2, "b": 3}}
    call, result, answer = called[0]["messages"]
    assert call["tool_calls"][0]["function"] == arguments
    assert (result["role"], result["name"], result["content"]) == ("tool", "add", "5")
    assert answer == {"role": "assistant", "content": "answer 5"}
    # The result and the template's text around it are three tokens, and none of them is a decision.
    assert [place for place, value in enumerate(called[0]["token_log_prob"]) if value is None] == [10, 11, 12]
    assert called[0]["num_decisions"] == called[0]["num_tokens"] - 3
    assert called[0]["reward"] == called[0]["rewards"]["correct"] == 1.0
    steps = [row for row in read_metrics(finished.folder.metrics) if "logged/tools/call_frequency" in row]
    assert 0 < steps[0]["logged/tools/call_frequency"] <= 2
    assert all(0 <= row["logged/tools/failed_calls"] <= row["logged/tools/call_frequency"] for row in steps)


def talk(config: ChatTools, tokenizer: Any, max_new_tokens: int = 200) -> Conversations:
    chat = Chat(tokenizer, ChatConfig(), config.schemas)
    columns = [{"prompt": QUESTION}] * 2
    return Conversations(config.for_template(chat.template), columns, chat, [tokenizer.eos_token_id], max_new_tokens)


def test_turns_and_calls_have_an_end():
    config = ChatTools(tools=(f"{HERE}:add",), parser="hermes", max_turns=2, max_calls=1)
    conversation = config.open()
    step = conversation.step(CALL * 3)
    assert step.counts == {"tools/call_frequency": 3.0, "tools/failed_calls": 2.0}
    assert [message["content"] for message in step.messages] == ["5; error: a turn may hold 1 calls; 2 were left out"]
    last = conversation.step(CALL)
    assert last.done
    assert last.action is not None
    assert last.action["tool_calls"]


def test_a_result_cannot_end_its_own_message():
    tokenizer = calling_tokenizer()
    chat = Chat(tokenizer, ChatConfig(), ChatTools(tools=(f"{HERE}:add",)).schemas)
    ids = chat.encode_reply(QUESTION, [chat.reply_message(f"5 {tokenizer.eos_token} 6")], tokenizer.eos_token_id)
    assert tokenizer.eos_token_id not in ids


TEMPLATES = Path(find_spec("trl").origin).parent / "chat_templates"
FAMILIES = {
    "qwen2_5": ("hermes", "<|im_end|>"),
    "qwen3_training": ("hermes", "<|im_end|>"),
    "qwen3_instruct_2507": ("hermes", "<|im_end|>"),
    "llama3_1": ("llama", "<|eot_id|>"),
    "llama3_2": ("llama", "<|eot_id|>"),
}


def family(name: str) -> Any:
    """Returns a tokenizer of single characters with the chat template of a model family."""
    from groupwise.causal_lm.small import character_tokenizer

    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    tokenizer = character_tokenizer("".join(map(chr, range(32, 127))) + "\n")
    eos = FAMILIES[name][1]
    tokenizer.add_special_tokens({"eos_token": eos, "additional_special_tokens": ["<|im_start|>", "<|python_tag|>"]})
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_reply_is_what_trl_appends(name):
    from trl import GRPOTrainer

    tokenizer = family(name)
    config = ChatTools(tools=(f"{HERE}:add",))
    conversations = talk(config, tokenizer, 100_000)
    assert config.for_template(conversations.chat.template).parser == FAMILIES[name][0]
    call = {"hermes": CALL, "llama": '{"name": "add", "parameters": {"a": 2, "b": 3}}'}[FAMILIES[name][0]]
    reply = conversations.answer(0, [*tokenizer.encode(call), tokenizer.eos_token_id])
    trainer = SimpleNamespace(
        _is_vlm=False, processing_class=tokenizer, _tokenizer=tokenizer, chat_template=None, chat_template_kwargs={}
    )
    (message,) = conversations.messages[0][1:]
    expected = GRPOTrainer._get_tool_suffix_ids(trainer, [message])  # type: ignore[arg-type]
    assert reply == list(expected)
    assert message["content"] == "5"


def test_templates_that_do_not_fit_are_refused():
    tokenizer = calling_tokenizer()
    schemas = ChatTools(tools=(f"{HERE}:add",)).schemas
    template = tokenizer.chat_template
    with pytest.raises(ConfigError, match=r"the prompt '2 plus 3 \?' is a text.* write chat.use = 'always'"):
        Chat(tokenizer, ChatConfig(), schemas).encode_prompt("2 plus 3 ?")
    tokenizer.chat_template = template.replace("tool in tools", "tool in []")
    with pytest.raises(ConfigError, match=r"does not write the tools \(add\)"):
        Chat(tokenizer, ChatConfig(), schemas)
    tokenizer.chat_template = template.replace(
        "{{ message.content }}", "{{ message.content if message.role != 'tool' }}"
    )
    with pytest.raises(ConfigError, match="does not write messages of the role tool"):
        Chat(tokenizer, ChatConfig(), schemas)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="shows tools, but the tokenizer of this model has no chat template"):
        Chat(tokenizer, ChatConfig(), schemas)
    with pytest.raises(ConfigError, match="in none of the formats that are read; write parser = 'hermes'"):
        ChatTools(tools=(f"{HERE}:add",)).for_template("plain")


def test_tools_that_cannot_be_used_are_refused():
    with pytest.raises(ConfigError, match=r"domain.environment.tools\[0\] = .*: .* has no 'subtract'"):
        _ = ChatTools(tools=(f"{HERE}:subtract",)).schemas
    with pytest.raises(ConfigError, match="two tools are called add; rename one"):
        _ = ChatTools(tools=(f"{HERE}:add", f"{HERE}:add")).schemas
    with pytest.raises(ConfigError, match=r"tools: an object of type function was given; .*write tools=\[function\]"):
        groupwise.train("language", tools=add)
    with pytest.raises(ConfigError, match=r"tools\[0\]: an object of type int was given; write a function"):
        groupwise.train("language", tools=[3])
    with pytest.raises(ConfigError, match="tools: the diffusion domain calls none; leave the argument out"):
        groupwise.train("diffusion", tools=[add])
