"""The fused decode step against the model's own forward pass, token by token."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.causal_lm.sizes import IDS, SIZES
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from groupwise.causal_lm import decode
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.decode import FusedDecoder

CONFIGS = {
    "qwen3": Qwen3Config(**SIZES, **IDS, num_key_value_heads=2, head_dim=6, rms_norm_eps=1e-2),
    "qwen3-one-head": Qwen3Config(**SIZES, **IDS, num_key_value_heads=4, head_dim=4, attention_bias=True),
    "qwen2": Qwen2Config(**SIZES, **IDS, num_key_value_heads=1),
    "llama": LlamaConfig(**SIZES, **IDS, num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama3-rope": LlamaConfig(
        **SIZES,
        **IDS,
        num_key_value_heads=2,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 100.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
}


def build(name: str):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms start at 0 and 1, where leaving one out would not show.
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_every_step_equals_a_forward_of_the_whole_row(name, padded):
    model = build(name)
    backbone = Backbone(model)
    prompts = [[5, 6, 7, 8], [12, 13] if padded else [12, 13, 3, 9]]
    hidden, decoder, position = decode.prefill(backbone, prompts, 2, 6)
    assert type(decoder) is FusedDecoder
    rows = [list(prompts[m // 2]) for m in range(4)]
    alive = [0, 1, 2, 3]
    for step in range(6):
        for place, member in enumerate(alive):
            torch.testing.assert_close(
                hidden[place], model.model(torch.tensor([rows[member]])).last_hidden_state[0, -1], rtol=1e-4, atol=2e-5
            )
        if step == 2:
            keep = torch.tensor([3, 0])
            decoder.select(keep)
            alive, position = [alive[i] for i in keep], position[keep]
        token = torch.tensor([(7 * step + 3 * member) % 31 for member in alive])
        for member, t in zip(alive, token.tolist(), strict=True):
            rows[member].append(t)
        hidden = decoder.step(token, position)
        position = position + 1


def test_models_without_a_fused_form_go_through_the_library(model_of):
    assert FusedDecoder.serves(Backbone(model_of("llama")))
    assert not FusedDecoder.serves(Backbone(model_of("gpt2")))
    assert not FusedDecoder.serves(Backbone(model_of("gemma2")))
    assert not FusedDecoder.serves(Backbone(model_of("llama", torch.float64)))
    assert not FusedDecoder.serves(Backbone(model_of("llama", torch.bfloat16)))
    assert not FusedDecoder.serves(Backbone(model_of("llama", hidden_act="gelu")))
    assert not FusedDecoder.serves(
        Backbone(model_of("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}))
    )
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    assert not FusedDecoder.serves(Backbone(model_of("qwen3", **sliding)))
    assert not FusedDecoder.serves(Backbone(get_peft_model(model_of("llama"), LoraConfig(target_modules=["v_proj"]))))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not FusedDecoder.serves(Backbone(model_of("llama")))
