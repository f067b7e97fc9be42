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
from groupwise.causal_lm.scratch import character_tokenizer, small_model
from groupwise.domain.language.parsed_turn import parsed_turn
from groupwise.reward.completions import in_form
from groupwise.streams import Streams

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "add"}\n</tool_call>'
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
