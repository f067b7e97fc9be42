"""A small chat model and rows of sums, as TRL takes them."""

from __future__ import annotations

from typing import Any

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model

TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def model() -> Any:
    tokenizer = character_tokenizer("0123456789+=?\\boxed{}$:au")
    tokenizer.chat_template = TEMPLATE
    return small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0), tokenizer


def rows(size: int = 8) -> list[dict[str, Any]]:
    return [
        {"prompt": [{"role": "user", "content": f"{place}+1=?"}], "solution": f"${place + 1}$"} for place in range(size)
    ]
