"""Shapes and their counts of weights, against models that transformers builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.config import ConfigError
from groupwise.estimate.shape import _GATED, _PLAIN, _TIED, read_shape, shape_of

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
}


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("qwen3", {**SIZES, "head_dim": 16, "tie_word_embeddings": True}),
        ("qwen2", {**SIZES, "tie_word_embeddings": False}),
        ("llama", SIZES),
        ("gpt2", {"n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 300, "n_positions": 32}),
        ("starcoder2", {**SIZES, "bos_token_id": 1, "eos_token_id": 2}),
        ("nemotron", SIZES),
        ("gpt_neox", {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}),
        ("gemma2", {**SIZES, "head_dim": 16}),
    ],
)
def test_the_count_is_that_of_the_model(family: str, sizes: dict[str, int]):
    config = AutoConfig.for_model(family, **sizes)
    model = AutoModelForCausalLM.from_config(config)
    shape = shape_of(config.to_dict())
    # Norms, biases and learned positions differ from family to family and are little.
    assert shape.parameters == pytest.approx(sum(parameter.numel() for parameter in model.parameters()), rel=0.05)
    matrices = [weight for name, weight in model.named_parameters() if weight.dim() == 2 and ".0." in name]
    assert shape.layer_weights == sum(weight.numel() for weight in matrices)


def test_an_adapter_is_counted_as_peft_makes_it():
    from peft import LoraConfig, get_peft_model

    config = AutoConfig.for_model("qwen3", **SIZES, head_dim=16)
    model = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(r=4, target_modules="all-linear"))
    assert shape_of(config.to_dict()).lora(4) == sum(
        parameter.numel() for parameter in model.parameters() if parameter.requires_grad
    )


def test_a_model_that_is_no_dense_decoder_is_refused(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SIZES, "num_experts": 8}))
    with pytest.raises(ConfigError, match="mixture of experts"):
        read_shape(tmp_path)
    file.write_text(json.dumps({"hidden_size": 4}))
    with pytest.raises(ConfigError, match="has no num_hidden_layers"):
        read_shape(file)
    file.write_text(json.dumps({"model_type": "some", "text_config": SIZES}))
    assert read_shape(file).kv_heads == 2
    file.write_text(json.dumps({"model_type": "mamba", **SIZES}))
    with pytest.raises(
        ConfigError,
        match=r'model_type = "mamba" is no dense decoder whose layers are known here; known are apertus, .*, qwen3',
    ):
        read_shape(file)


def test_every_family_ties_its_head_as_transformers_does():
    for family in sorted(_GATED | _PLAIN):
        config = AutoConfig.for_model(family)
        assert getattr(config, "tie_word_embeddings", False) == (family in _TIED), family
