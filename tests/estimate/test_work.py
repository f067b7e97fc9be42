"""Operations of a step: by hand on a small shape, and against those that torch counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.estimate.machine import Step, work
from groupwise.estimate.shape import Shape, shape_of

SMALL = Shape(hidden=4, intermediate=8, vocabulary=10, layers=2, heads=2, kv_heads=1, head_width=2)
STEP = Step(prompts=3, group_size=2, prompt_tokens=5, completion_tokens=4, longest=6)


def test_a_step_by_hand():
    # A layer: 2 * 4 * (4 + 2) + 3 * 4 * 8 = 144 weights; the head 40. Context 7 for completions, 5 / 2 on average in
    # prompts.
    assert SMALL.layer_weights == 144
    prompts, written = 15 * 2 * (288 + 2 * 4 * 5), 24 * 2 * (288 + 4 * 4 * 7)
    part_work = work(SMALL, STEP)
    assert (part_work["sampling"].layer_flops, part_work["sampling"].head_flops, part_work["sampling"].calls) == (
        prompts + written,
        24 * 80,
        6,
    )
    assert (part_work["update"].layer_flops, part_work["update"].head_flops, part_work["update"].calls) == (
        3 * (prompts + written),
        3 * 24 * 80,
        1,
    )
    assert "scoring" not in part_work


def test_what_the_settings_change():
    plain = work(SMALL, STEP)
    scored = work(SMALL, replace(STEP, reference=True, micro_batch=4))
    assert scored["scoring"].flops == plain["sampling"].flops
    assert scored["scoring"].calls == scored["update"].calls == 2
    several = work(SMALL, replace(STEP, updates=4, minibatches=3, learning_share=0.5))
    assert several["update"].flops == pytest.approx(4 * 0.5 * plain["update"].flops)
    assert several["update"].calls == 12
    again = work(SMALL, replace(STEP, checkpointing=True))
    assert again["update"].layer_flops == pytest.approx(4 / 3 * plain["update"].layer_flops)
    assert again["update"].head_flops == plain["update"].head_flops
    batch = work(SMALL, replace(STEP, updates=2, extra_forward=True))
    assert batch["update"].flops == pytest.approx(2 * 3.5 / 3 * plain["update"].flops)
    assert work(SMALL, STEP, num_processes=3)["sampling"].flops == pytest.approx(plain["sampling"].flops / 3)


def test_operations_are_those_that_torch_counts():
    config = AutoConfig.for_model(
        "qwen3",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=64,
        vocab_size=100,
        attn_implementation="eager",
    )
    model = AutoModelForCausalLM.from_config(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(100, (6, 12))).logits.sum().backward()
    # A completion alone, with a context of all 12: an eager pass computes the whole square.
    found = work(
        shape_of(config.to_dict()), Step(prompts=6, group_size=1, prompt_tokens=0, completion_tokens=12, longest=12)
    )["update"]
    whole_square = 3 * 2 * 4 * 32 * 72 * (12 - 6)
    assert counter.get_total_flops() == pytest.approx(found.flops + whole_square, rel=0.05)
