"""LoRA layers without peft's bookkeeping give peft's own bits, and layers of other kinds are left to peft."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import peft
import pytest
import torch
from peft.tuners.lora.layer import Linear

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone, quick_adapters
from groupwise.causal_lm.config import SamplingConfig, SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model


def adapted(dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """A small model with an adapter that changes what it says."""
    tokenizer = character_tokenizer("abcdef")
    model = small_model(SmallModelConfig(hidden_size=32, num_heads=2), tokenizer, seed=0).to(dtype)
    arguments = {"r": 4, "lora_alpha": 7, "target_modules": ["q_proj", "o_proj", "down_proj"]} | settings
    model = peft.get_peft_model(model, peft.LoraConfig(**arguments))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 0.3
    return model.eval()


def layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, Linear)]


def replaced(model: Any) -> int:
    """How many layers compute without peft within the block."""
    with quick_adapters(model):
        return sum("forward" in vars(layer) for layer in layers(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_layer_gives_the_bits_that_peft_gives(dtype: torch.dtype, autocast: bool) -> None:
    model = adapted(dtype)
    assert replaced(model) == len(layers(model)) > 0
    for layer in layers(model):
        x = torch.randn(3, 5, layer.in_features, generator=torch.Generator().manual_seed(1)).to(dtype)
        context = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext()
        with torch.no_grad(), context:
            expected = layer(x)
            with quick_adapters(model):
                actual = layer(x)
            without = layer.base_layer(x)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)
        assert not torch.equal(actual, without), "the adapter has no part in it"


def test_groups_are_sampled_with_the_same_tokens_and_log_probs(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = Backbone(adapted())
    seen: list[int] = []

    def counted(model: Any) -> Any:
        seen.append(replaced(model))
        return quick_adapters(model)

    def drawn() -> sampler.Completions:
        return sampler.sample(
            backbone, sampler.GroupBatch([[3, 4], [5]], 4, SamplingConfig(max_new_tokens=6), seeds=range(8))
        )

    monkeypatch.setattr(sampler, "quick_adapters", counted)
    quick = drawn()
    monkeypatch.setattr(sampler, "quick_adapters", lambda model: nullcontext())
    plain = drawn()
    assert seen == [len(layers(backbone.model))]
    assert torch.equal(quick.tokens, plain.tokens)
    assert torch.equal(quick.log_prob, plain.log_prob)


def test_layers_are_peft_s_own_again_after_the_block() -> None:
    model = adapted()
    with pytest.raises(KeyboardInterrupt), quick_adapters(model):
        raise KeyboardInterrupt
    assert not any("forward" in vars(layer) for layer in layers(model))


def off(model: Any) -> Any:
    return model.disable_adapter()


def hooked(model: Any) -> Any:
    for layer in layers(model):
        layer.base_layer.register_forward_hook(lambda module, arguments, output: output)
    return nullcontext()


def wrapped(model: Any) -> Any:
    for layer in layers(model):
        product = layer.base_layer.forward
        layer.base_layer.forward = lambda x, product=product: product(x) + 1
    return nullcontext()


def merged(model: Any) -> Any:
    model.merge_adapter()
    return nullcontext()


def dropping(model: Any) -> Any:
    model.train()
    return nullcontext()


def two(model: Any) -> Any:
    model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["q_proj", "o_proj", "down_proj"]))
    model.base_model.set_adapter(["default", "second"])
    return nullcontext()


@pytest.mark.parametrize("change", [off, hooked, wrapped, merged, dropping, two])
def test_what_is_no_plain_product_is_left_to_peft(change: Callable[[Any], Any]) -> None:
    model = adapted(lora_dropout=0.5)
    assert replaced(model) > 0
    with change(model):
        assert replaced(model) == 0


def test_a_variant_is_left_to_peft() -> None:
    assert replaced(adapted(use_dora=True)) == 0
    assert replaced(torch.nn.Linear(2, 2)) == 0
