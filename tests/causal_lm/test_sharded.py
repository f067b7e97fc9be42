"""A model in shards of one process accumulates the gradients of a plain one, whichever of its weights are trained."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.learner.one_process import sharding

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.cache import character_tokenizer, small_model
from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.sharded import ShardedLM
from groupwise.learner.shards import local_part, process_mesh

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
    scoring.backward(plain, PROMPTS, TOKENS, MASK, COTANGENTS)
    expected = {
        name: parameter.grad for name, parameter in plain.model.named_parameters() if parameter.grad is not None
    }
    assert expected
    with sharding():
        sharded = ShardedLM(Backbone(model), process_mesh(torch.device("cpu")))
        sharded.backward(PROMPTS, TOKENS, MASK, COTANGENTS, ["log_prob"], temperature=1.0)
        gradients = {
            name: local_part(parameter.grad)
            for name, parameter in sharded.model.named_parameters()
            if parameter.grad is not None
        }
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-5, atol=1e-6), name
