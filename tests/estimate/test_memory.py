"""Bytes by part: by hand where they are counts, measured where they are activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.causal_lm.head_tiles import GPU_TILES
from groupwise.estimate.estimate import Numbers, estimate, memory
from groupwise.estimate.machine import Step, documented_machine
from groupwise.estimate.shape import Shape, shape_of
from groupwise.memory import peak_bytes

SHAPE = Shape(hidden=64, intermediate=192, vocabulary=100, layers=3, heads=4, kv_heads=2, head_width=16)
STEP = Step(prompts=4, group_size=8, prompt_tokens=20, completion_tokens=10, longest=12)


def test_counts_by_hand():
    found = memory(SHAPE, replace(STEP, reference=True))
    count = SHAPE.parameters
    assert [found[name] / count for name in ("weights", "gradients", "moments", "reference")] == [4, 4, 8, 4]
    assert found["cache"] == 4 * 2 * 3 * 32 * 32 * 32
    assert found["peak"] == 16 * count + max(found["cache"], 4 * count + found["activations"] + found["head"])


def test_the_reference_of_an_adapter_is_as_large_as_the_adapter_and_shards_divide_the_bytes():
    adapter = memory(SHAPE, replace(STEP, reference=True), numbers=Numbers(weight=2, lora_rank=4))
    assert adapter["reference"] == 4 * SHAPE.lora(4)
    assert adapter["moments"] == 8 * SHAPE.lora(4)
    shards = memory(SHAPE, STEP, 4, sharding="full")
    assert shards["moments"] == 2 * SHAPE.parameters
    # Embedding (the head too) and two of three layers, and their gradients.
    assert shards["gathered"] == 2 * 4 * (64 * 100 + 2 * SHAPE.layer_weights)
    lora = memory(SHAPE, STEP, 4, Numbers(lora_rank=4), "full")
    assert lora["gathered"] == shards["gathered"] / 2
    # A fourth of the weights (4 bytes) and of both moments (8), and the whole weights while it samples.
    long = memory(SHAPE, replace(STEP, micro_batch=1, longest=10000), 4, sharding="full")
    assert long["peak"] == (1 + 2 + 4) * SHAPE.parameters + long["cache"]


def test_servers_on_devices_of_their_own_leave_the_update_alone():
    served = memory(SHAPE, replace(STEP, micro_batch=1, longest=10000, served=True), 4, sharding="full")
    update = sum(served[name] for name in ("gathered", "gradients", "activations", "head"))
    # A fourth of the weights (4 bytes) and of both moments (8).
    assert served["peak"] == (1 + 2) * SHAPE.parameters + update


def test_a_server_on_the_same_device_holds_its_share_of_it_unless_it_sleeps():
    alone = memory(SHAPE, replace(STEP, served=True))
    assert alone["cache"] == 0
    awake = replace(STEP, served=True, server_bytes=1e9)
    assert memory(SHAPE, awake)["peak"] == alone["peak"] + 1e9
    resident = sum(alone[name] for name in ("weights", "moments", "reference"))
    assert memory(SHAPE, replace(awake, server_sleeps=True))["peak"] == resident + 1e9


def test_autocast_keeps_the_layers_weights_in_its_type():
    """Until the backward pass, by every process, also where the weights themselves are in shards."""
    config = AutoConfig.for_model(
        "qwen3",
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=1024,
        vocab_size=50,
    )
    model = AutoModelForCausalLM.from_config(config).model
    held: list[torch.Tensor] = []

    def run(autocast: bool) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            held.append(model(torch.arange(4).unsqueeze(0)).last_hidden_state)

    more = []
    for autocast in (False, True):
        run(autocast)
        held.clear()
        more.append(peak_bytes(lambda autocast=autocast: run(autocast), torch.device("cpu")))
        held.clear()
    shape = shape_of(config.to_dict())
    casts = memory(shape, STEP, 4, Numbers(weight=4, activation=2), "full")["casts"]
    assert more[1] - more[0] == pytest.approx(casts, rel=0.02)
    checkpointing = memory(shape, replace(STEP, checkpointing=True, served=True), numbers=Numbers(4, 2))["casts"]
    assert checkpointing == casts / 6


def test_micro_batches_and_checkpointing_hold_less():
    whole = memory(SHAPE, STEP)["activations"]
    assert memory(SHAPE, replace(STEP, micro_batch=8))["activations"] == whole / 4
    assert memory(SHAPE, replace(STEP, checkpointing=True))["activations"] < whole / 2
    assert memory(SHAPE, STEP, 4)["activations"] == whole / 4
    # A prompt counts once for its group.
    assert memory(SHAPE, replace(STEP, prompt_tokens=0))["activations"] == whole * 320 / (320 + 4 * 20)


@pytest.mark.parametrize("sizes", [(64, 192, 3), (128, 256, 2)])
def test_activations_are_what_a_pass_holds(sizes: tuple[int, int, int]):
    hidden, intermediate, layers = sizes
    config = AutoConfig.for_model(
        "qwen3",
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        intermediate_size=intermediate,
        vocab_size=50,
    )
    model = AutoModelForCausalLM.from_config(config).model
    tokens = torch.randint(50, (16, 30))
    held: list[torch.Tensor] = []

    def run() -> None:
        held.append(model(tokens).last_hidden_state)

    run()
    held.clear()
    found = memory(
        shape_of(config.to_dict()), Step(prompts=16, group_size=1, prompt_tokens=20, completion_tokens=10, longest=10)
    )["activations"]
    # A little above, for what an update keeps beside it.
    assert found == pytest.approx(1.09 * peak_bytes(run, torch.device("cpu")), rel=0.05)


def test_an_adapter_on_weights_of_two_bytes_keeps_inputs_of_four():
    hidden, intermediate, layers, tokens = 256, 1024, 3, 64
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=320,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=1,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    weights = {parameter.untyped_storage().data_ptr() for parameter in adapted.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        inner: Any = adapted.get_base_model()
        states = inner.model(torch.arange(tokens).unsqueeze(0)).last_hidden_state
    assert states.requires_grad
    held = sum(storage.nbytes() for address, storage in kept.items() if address not in weights)
    step = Step(prompts=1, group_size=1, prompt_tokens=0, completion_tokens=tokens, longest=tokens)
    numbers = Numbers(weight=2, activation=2, lora_rank=4)
    foretold = memory(shape_of(config.to_dict(), "qwen2"), step, numbers=numbers)["activations"]
    assert 0.8 < held / foretold < 1.1
    whole = memory(shape_of(config.to_dict(), "qwen2"), step, numbers=replace(numbers, lora_rank=None))["activations"]
    assert held > 1.2 * whole


def test_the_head_holds_its_tiles_by_device():
    large = replace(SHAPE, vocabulary=100_000)
    # 192 MiB hold 503 rows of 100,000 logits in fp32, beside tiles of 2,048 tokens; 320 positions are fewer.
    assert memory(large, STEP)["head"] == 4 * 320 * (100_000 + 2048)
    many = replace(STEP, completion_tokens=100, longest=100)
    assert memory(large, many)["head"] == 4 * 503 * (100_000 + 2048)
    # A GPU takes its 1.25 GiB whole: 3,355 rows, beside tiles of 16,384.
    for step in (STEP, many):
        assert memory(large, step, tiles=GPU_TILES)["head"] == 4 * 3355 * (100_000 + 2**14)
    on_h100 = estimate(large, STEP, documented_machine("H100", half=True))
    assert on_h100.bytes["head"] == 4 * 3355 * (100_000 + 2**14)
