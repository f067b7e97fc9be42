"""A small model that was taught one conversation with a tool, and its tokenizer with a chat template of Qwen's form."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import small_model
from groupwise.domain.language.chat import build_tokenizer

CALL = '<tool_call> {"name": "add", "arguments": {"a": 2, "b": 3}} </tool_call>'
TEMPLATE = (
    "{% if tools %}tools {% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}"
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <tool_call> #}"
)
WORDS = [
    f"tools add [user] [assistant] [tool] plus ? answer [ ] {CALL}",
    " ".join(str(number) for number in range(10)),
    "error: ZeroDivisionError: broken",
]


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return a + b


def calling_tokenizer() -> Any:
    tokenizer = build_tokenizer("words", WORDS)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@cache
def _weights() -> tuple[Any, Any]:
    tokenizer = calling_tokenizer()
    model: Any = small_model(SmallModelConfig(hidden_size=32, num_heads=2), tokenizer, seed=0)
    eos = tokenizer.eos_token
    prompt = "tools add [user] 2 plus 3 ? [assistant]"
    text = f"{prompt} {CALL} {eos} [tool] 5 [assistant] answer 5 {eos}"
    ids = torch.tensor([tokenizer.encode(text)])
    assert tokenizer.unk_token_id not in ids
    labels = ids.clone()
    labels[:, : len(tokenizer.encode(prompt))] = -100
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimiser.step()
    return model, tokenizer


def calling_model() -> tuple[Any, Any]:
    """Returns fresh copies, so that a test may train them."""
    model, tokenizer = _weights()
    copy = small_model(SmallModelConfig(hidden_size=32, num_heads=2), tokenizer, seed=0)
    copy.load_state_dict(model.state_dict())  # type: ignore[attr-defined]
    return copy, tokenizer
