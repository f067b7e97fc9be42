"""A model in shards of one process accumulates the gradients of a plain one, whichever of its weights are trained."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tests.learner.one_process import sharding
from transformers import Qwen3MoeConfig

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.sharded import ShardedLM
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.config import ConfigError
from groupwise.domain.language.config import DataConfig, LanguageConfig, Pretrained
from groupwise.domain.language.data import Splits
from groupwise.domain.language.policy import open_policy
from groupwise.domain.language.source import Cups
from groupwise.learner.shards import local_part, process_mesh
from groupwise.streams import Streams

PROMPTS = [[3, 4], [5]]
TOKENS = torch.tensor([[4, 3, 1], [6, 1, 0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
COTANGENTS = {"log_prob": torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, 0.0]])}


@pytest.mark.parametrize("trained", ["lm_head", "embed_tokens", "layers.1", "norm"])
def test_a_part_of_the_weights_gets_the_gradients_of_a_plain_model(trained: str) -> None:
    shape = SmallModelConfig(hidden_size=8, num_heads=2, tied=False)
    model = small_model(shape, character_tokenizer("abcdefgh"), seed=0)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    plain = Backbone(copy.deepcopy(model))
    scoring.backward(plain, scoring.ScoringInputs(PROMPTS, TOKENS, MASK), COTANGENTS)
    expected = {
        name: parameter.grad for name, parameter in plain.model.named_parameters() if parameter.grad is not None
    }
    assert expected
    with sharding():
        sharded = ShardedLM(Backbone(model), process_mesh(torch.device("cpu")))
        sharded.backward(scoring.ScoringInputs(PROMPTS, TOKENS, MASK), COTANGENTS)
        gradients = {
            name: local_part(parameter.grad)
            for name, parameter in sharded.model.named_parameters()
            if parameter.grad is not None
        }
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-5, atol=1e-6), name


def test_a_mixture_of_experts_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen3MoeConfig(**sizes, num_experts=4, num_experts_per_tok=2).save_pretrained(tmp_path)
    character_tokenizer("abcdefgh").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    config = LanguageConfig(
        model=Pretrained(path=str(tmp_path)),
        data=DataConfig(source=Cups(), num_train=1, num_held_out=1),
        rewards={"length": {"kind": "length"}},
    )
    with pytest.raises(ConfigError, match=r"the model is a mixture of experts.*write train\.sharding = none"):
        open_policy(config, Splits((), {}), Streams(0), torch.device("cpu"), spreads=True)
