"""Turns as messages: as TRL reads them, for rewards that read messages; texts stay whole for the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.chat_template_utils import parse_response, qwen3_template

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.domain.language.chat import Chat, Conversations, parsed_turn, unreadable_template
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.environment import ChatTools
from groupwise.reward.completions import in_form
from groupwise.streams import Streams

pytestmark = pytest.mark.slow

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "add"}\n</tool_call>'
CALCULATE = "groupwise.domain.language.environment:calculate"
CALCULATION = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "2+3"}}\n</tool_call>'
SEEN: list[Any] = []


def tokenizer() -> Any:
    made: Any = character_tokenizer("".join(map(chr, range(32, 127))) + "\n")
    made.add_special_tokens({"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]})
    made.chat_template, made.response_template = TEMPLATE, qwen3_template
    return made


def seen(completions: Sequence[Any], **columns: Any) -> list[float]:
    SEEN.append(list(completions))
    return [0.0] * len(completions)


@pytest.mark.parametrize("opened", ["", "<think>\n"])
@pytest.mark.parametrize(
    "turn",
    [
        "<think>\nso 2\n</think>\n\nanswer 2<|im_end|>",
        "answer 2<|im_end|>",
        "<think>never closed",
        "hm <think>a</think> b<|im_end|>",
        "so\n</think>\n\n4<|im_end|>",
        f"<think>a</think>\nx {CALL}<|im_end|>",
        '<tool_call>\n{"name": </tool_call><|im_end|>',
        '<tool_call>\n{"other": 1}\n</tool_call><|im_end|>',
        "<tool_call>\n[1]\n</tool_call><|im_end|>",
        "<|im_end|>",
    ],
)
def test_a_turn_is_read_as_trl_reads_it(turn: str, opened: str) -> None:
    made = tokenizer()
    prefix = made.encode(f"<|im_start|>user\n1?<|im_end|>\n<|im_start|>assistant\n{opened}")
    ids = made.encode(turn)
    text = made.decode(ids, skip_special_tokens=True)
    read = parsed_turn(made, text, ids, prefix)
    assert read == text
    assert in_form([[]], [read], None) == [[parse_response(made, ids, prefix=prefix, tools=[])]]
    assert in_form(["1?"], [read], None) == [text]
    assert type(in_form([[]], [read], "text")[0]) is str


def test_rewards_of_a_chat_find_thoughts_apart_and_texts_whole(build: Any, tmp_path: Path) -> None:
    made = tokenizer()
    model: Any = small_model(SmallModelConfig(hidden_size=8, num_heads=2), made, seed=0)
    for part in (model, made):
        part.save_pretrained(tmp_path / "model")
    rows: list[dict[str, Any]] = [{"prompt": [{"role": "user", "content": f"{number}?"}]} for number in range(2)]
    rows.append({"prompt": "text?"})
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    reward = {"kind": "callable", "path": "tests.domain.language.test_parsed_turn:seen"}
    domain = build(
        model={"kind": "pretrained", "path": str(tmp_path / "model"), "dtype": "float32"},
        data={
            "source": {"kind": "files", "paths": [str(tmp_path / "rows.json")], "shuffle": False},
            "num_train": None,
            "num_held_out": 1,
        },
        demonstrations=None,
        rewards={
            "correct": None,
            "worked": None,
            "seen": reward,
            "seen_texts": {**reward, "completions": "text"},
        },
    )
    samples = domain.sample(
        domain.prompts([0, 1]), 1, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    ids = made.encode("<think>so</think>4<|im_end|>")
    samples.payload["tokens"] = torch.tensor([ids, ids])
    samples.payload["length"] = torch.tensor([len(ids)] * 2)
    SEEN.clear()
    domain.reward(samples)
    text = "<think>so</think>4"
    messages = [{"role": "assistant", "reasoning_content": "so", "content": "4"}]
    assert sorted(map(str, SEEN)) == sorted(map(str, [[messages, text], [text, text]]))


def _without_ids(messages: Sequence[Any]) -> list[Any]:
    """The messages as TRL has them: calls carry no id there."""
    return [
        {
            name: [{key: part for key, part in call.items() if key != "id"} for call in value]
            if name == "tool_calls"
            else value
            for name, value in message.items()
        }
        for message in messages
    ]


@pytest.mark.parametrize("has_template", [True, False])
@pytest.mark.parametrize("opened", ["", "<think>\n"])
@pytest.mark.parametrize(
    "first",
    [
        f"<think>\nhm\n</think>\n\n{CALCULATION}<|im_end|>",
        f"<think>a</think>\nso {CALCULATION}\n{CALCULATION}<|im_end|>",
        f"{CALCULATION}<|im_end|>",
        f"<think></think>{CALCULATION}<|im_end|>",
        f"hm <think>a {CALCULATION}</think> b<|im_end|>",
        "so</think>4",
        f"<think>never closed {CALCULATION}<|im_end|>",
        '<think>a</think>x<tool_call>\n{"name": </tool_call><|im_end|>',
    ],
)
def test_thoughts_beside_tools_are_read_as_trl_reads_them(first: str, opened: str, has_template: bool) -> None:
    made = tokenizer()
    # TRL gives its own template to a tokenizer without one, where it knows the chat.
    theirs = tokenizer()
    if not has_template:
        del made.response_template
    template = TEMPLATE.replace("assistant\n{% endif", f"assistant\n{opened}{{% endif")
    made.chat_template = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + template
    config = ChatTools.model_validate({"tools": (CALCULATE,), "parser": "hermes"})
    chat = Chat(made, ChatConfig(), config.schemas)
    prompt = [{"role": "user", "content": "2 + 3?"}]
    before = chat.encode_prompt(prompt)
    conversations = Conversations(config, [{"prompt": prompt}], chat, [made.eos_token_id], 1000, [before])
    expected: list[Any] = []
    for turn in (first, "<think>\nit is\n</think>\n\nanswer 5<|im_end|>"):
        ids = made.encode(turn)
        expected.append(parse_response(theirs, ids, prefix=before, tools=[]))
        if not has_template and "reasoning_content" in expected[-1]:
            # TRL's parser leaves the end of the turn in a thought that was not closed.
            expected[-1]["reasoning_content"] = expected[-1]["reasoning_content"].removesuffix("<|im_end|>")
        if (reply := conversations.answer(0, ids)) is None:
            break
        before += [*ids, *reply]
        expected += [dict(message) for message in conversations.messages[0][len(expected) :]]
    (completion,) = conversations.completions
    assert _without_ids(in_form([prompt], [completion], None)[0]) == _without_ids(expected)
    if len(completion) > 1:
        assert in_form([prompt], [completion], "text") == ["<think>\nit is\n</think>\n\nanswer 5"], (
            "texts hold thoughts"
        )
    assert json.loads(json.dumps(completion)) == conversations.messages[0], "records hold what was written"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (3, "response_template must be a dict, got int"),
        ({"fields": 3}, "response_template.fields must be a non-empty dict"),
        ({"fields": {"content": {"close_pattern": "(", "content": "text"}}}, "invalid close_pattern regex"),
    ],
)
def test_a_response_template_that_reads_nothing_is_told(template: Any, reason: str) -> None:
    made = tokenizer()
    assert unreadable_template(made) == []
    made.response_template = template
    (remark,) = unreadable_template(made)
    assert reason in remark
    assert "messages are given to rewards as they were written" in remark
