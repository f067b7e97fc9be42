"""The memory of a step by formula: by hand where it is a count, measured where it is activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.causal_lm.config import LoraConfig
from groupwise.causal_lm.head_tiles import GPU_TILES
from groupwise.estimate import Shape, Step, memory
from groupwise.memory import peak_bytes

SIZES: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = AutoConfig.for_model(
    "qwen3", hidden_size=64, intermediate_size=192, vocab_size=100, num_hidden_layers=3, head_dim=16, **SIZES
)
SHAPE = Shape.of(CONFIG)
STEP = Step(prompts=4, group_size=8, prompt_tokens=20, completion_tokens=12)


def sizes(shape: Shape = SHAPE, step: Step = STEP, **arguments: Any) -> dict[str, float]:
    return {name: part.size for name, part in memory(shape, step, **arguments).items()}


def test_a_shape_is_that_of_the_model_of_any_family() -> None:
    assert (SHAPE.queries, SHAPE.keys, SHAPE.trained) == (64, 32, SHAPE.parameters)
    adapted = Shape.of(CONFIG, LoraConfig(r=4))
    assert adapted.parameters == SHAPE.parameters
    # Four matrices of attention and three of the feed-forward layer.
    assert adapted.trained == 3 * 4 * ((64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 192))
    experts = AutoConfig.for_model(
        "qwen3_moe", hidden_size=16, vocab_size=20, num_hidden_layers=2, num_experts=4, moe_intermediate_size=8, **SIZES
    )
    for config in (experts, AutoConfig.for_model("gpt2", n_embd=16, n_layer=2, n_head=2, vocab_size=20)):
        model = AutoModelForCausalLM.from_config(config)
        assert Shape.of(config).parameters == model.num_parameters()
    assert Shape.of(AutoConfig.for_model("gpt2", n_embd=16, n_layer=2, n_head=2)).intermediate == 64


def test_counts_by_hand() -> None:
    found, count = sizes(step=replace(STEP, reference=True)), SHAPE.parameters
    assert [found[name] / count for name in ("weights", "gradients", "moments", "reference")] == [4, 4, 8, 4]
    assert found["cache"] == 4 * 2 * 3 * 32 * 32 * 32
    assert found["peak"] == 16 * count + max(found["cache"], 4 * count + found["activations"] + found["logits"])
    whole = found["activations"]
    assert sizes(step=replace(STEP, pass_members=8))["activations"] == whole / 4
    assert sizes(step=replace(STEP, processes=4))["activations"] == whole / 4
    # A prompt counts once for its group.
    assert sizes(step=replace(STEP, prompt_tokens=0))["activations"] == whole * 384 / (384 + 4 * 20)
    assert sizes(step=replace(STEP, checkpointing=True))["activations"] < whole / 2
    served = sizes(step=replace(STEP, samples=False))
    assert "cache" not in served
    assert served["peak"] == sum(size for name, size in served.items() if name != "peak")


def test_adapters_and_shards() -> None:
    shape = Shape.of(CONFIG, LoraConfig(r=4))
    adapter = sizes(shape, replace(STEP, reference=True, weight_bytes=2))
    assert adapter["weights"] == 2 * shape.parameters + 4 * shape.trained
    assert (adapter["reference"], adapter["moments"]) == (4 * shape.trained, 8 * shape.trained)
    sharded = replace(STEP, processes=4, sharded=True)
    shards = sizes(step=sharded)
    assert shards["moments"] == 2 * SHAPE.parameters
    ends = SHAPE.parameters - 3 * SHAPE.layer_parameters
    # Embedding, head and two of three layers, and their gradients.
    assert shards["gathered"] == 2 * sizes(shape, sharded)["gathered"] == 8 * (ends + 2 * SHAPE.layer_parameters)
    assert shards["weights"] == SHAPE.parameters
    assert shards["sampler"] == 4 * SHAPE.parameters


@pytest.mark.parametrize(("hidden", "intermediate", "layers"), [(64, 192, 3), (128, 256, 2)])
def test_activations_are_what_a_pass_holds(hidden: int, intermediate: int, layers: int) -> None:
    config = AutoConfig.for_model(
        "qwen3",
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        head_dim=hidden // 4,
        vocab_size=50,
        **SIZES,
    )
    model: Any = AutoModelForCausalLM.from_config(config).model
    tokens, held = torch.randint(50, (16, 30)), list[torch.Tensor]()

    def run() -> None:
        held.clear()
        held.append(model(tokens).last_hidden_state)

    run()
    held.clear()
    found = sizes(Shape.of(config), Step(prompts=16, group_size=1, prompt_tokens=20, completion_tokens=10))
    # A little above, for what an update keeps beside it.
    assert found["activations"] == pytest.approx(1.09 * peak_bytes(run, torch.device("cpu")), rel=0.05)


def test_the_head_holds_its_tiles_by_device() -> None:
    large = replace(SHAPE, vocabulary=100_000)
    # 192 MiB hold 503 rows of 100,000 logits in fp32, beside tiles of 2,048 tokens; 384 positions are fewer.
    assert sizes(large)["logits"] == 4 * 384 * (100_000 + 2048)
    many = replace(STEP, completion_tokens=100)
    assert sizes(large, many)["logits"] == 4 * 503 * (100_000 + 2048)
    # A GPU takes its 1.25 GiB whole: 3,355 rows, beside tiles of 16,384.
    for step in (STEP, many):
        assert sizes(large, step, tiles=GPU_TILES)["logits"] == 4 * 3355 * (100_000 + 2**14)
