from __future__ import annotations

import warnings

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, Qwen3Config

from groupwise.learner.local import checkpoint_activations

SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}
CONFIGS = {
    "qwen3": Qwen3Config(**SIZES),
    "gpt2": GPT2Config(vocab_size=13, n_embd=8, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
}


def gradients(model: nn.Module) -> list[torch.Tensor]:
    model.zero_grad()
    model.train()(input_ids=torch.arange(6).unsqueeze(0), use_cache=False).logits.square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("adapted", [False, True])
def test_the_same_gradients_from_blocks_that_run_twice(family: str, adapted: bool) -> None:
    torch.manual_seed(0)
    model: nn.Module = AutoModelForCausalLM.from_config(CONFIGS[family])
    if adapted:
        model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    runs = []
    block = next(module for name, module in model.named_modules() if name.endswith(("layers.0.mlp", "h.0.mlp")))
    block.register_forward_pre_hook(lambda *_: runs.append(1))
    expected = gradients(model)
    assert len(runs) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint_activations(model, True)
        found = gradients(model)
        assert len(runs) == 3, "once forward, once more in the backward pass"
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one)
        checkpoint_activations(model, False)
    gradients(model)
    assert len(runs) == 4
