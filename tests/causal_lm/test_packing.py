"""Packed rows against the model's own pass of each row; which models are packed and which are left alone."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.causal_lm.sizes import IDS, SIZES
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    GPTNeoXConfig,
    GraniteConfig,
    MistralConfig,
    MixtralConfig,
    OlmoConfig,
)

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.learner.local import checkpoint_activations

OTHERS = {
    "gpt_neox": GPTNeoXConfig(**SIZES, **IDS),
    "cohere": CohereConfig(**SIZES, **IDS, num_key_value_heads=2, logit_scale=0.25),
    "mistral": MistralConfig(**SIZES, **IDS, num_key_value_heads=2, sliding_window=None),
    # Wider than what the model is tried on before it is packed.
    "mistral-sliding": MistralConfig(**SIZES, **IDS, num_key_value_heads=2, sliding_window=9),
    "granite": GraniteConfig(**SIZES, **IDS, num_key_value_heads=2, attention_multiplier=0.9, residual_multiplier=0.7),
    "mixtral": MixtralConfig(**SIZES, **IDS, num_key_value_heads=2, num_local_experts=4, sliding_window=None),
    "olmo": OlmoConfig(**SIZES, **IDS, num_key_value_heads=2),
}
PROMPTS = [[5, 6, 7, 8, 9, 10], [12, 13], [5, 6, 7, 8, 9, 10], [12, 13]]
LENGTHS = [7, 1, 4, 6]


def other(name: str):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(OTHERS[name]).eval()


@pytest.mark.parametrize("name", OTHERS)
def test_other_families_give_the_numbers_of_single_rows(name):
    model = other(name)
    backbone = Backbone(model)
    assert scoring.can_pack(backbone) == (name != "mistral-sliding")
    tokens = torch.randint(2, 31, (4, 8), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(8) < torch.tensor(LENGTHS)[:, None]
    found = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask))["log_prob"]
    cotangent = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
    (found * cotangent).sum().backward()
    ours = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for member, (prompt, n) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        row = torch.cat([torch.tensor(prompt), tokens[member, :n]])
        logits = model(row[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(1, tokens[member, :n, None])[:, 0]
        torch.testing.assert_close(found[member, :n], expected, rtol=0, atol=2e-5)
        (expected * cotangent[member, :n]).sum().backward()
    theirs = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    largest = max(value.abs().max().item() for value in theirs.values())
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, rtol=0, atol=2e-5 * largest)


def test_what_the_layers_do_not_allow_is_not_packed(model_of):
    assert scoring.can_pack(Backbone(model_of("gpt2")))
    assert scoring.can_pack(Backbone(get_peft_model(model_of("llama"), LoraConfig(target_modules="all-linear"))))
    assert not scoring.can_pack(Backbone(model_of("gemma2")))  # eager: its attention has a cap
    assert not scoring.can_pack(Backbone(model_of("llama", attn_implementation="eager")))
    checkpointed = Backbone(model_of("qwen3").train())
    assert scoring.can_pack(checkpointed)
    checkpoint_activations(checkpointed.model, True)
    assert not scoring.can_pack(checkpointed)


def test_a_model_that_would_answer_otherwise_is_found_out(model_of):
    backbone = Backbone(model_of("gpt2"))
    # A layer that looks at its neighbours in the row without the attention interface.
    backbone.body.h[0].register_forward_hook(lambda module, args, out: out + out.roll(1, 1))
    assert not scoring.can_pack(backbone)


@pytest.mark.parametrize("extra", ["softcap", "position_bias", "s_aux"])
def test_attention_with_a_cap_a_bias_or_sinks_is_left_to_the_model(extra):
    # Small logits hide a cap, so trying the model out would not find it.
    states = torch.zeros(1, 1, 2, 4)
    with pytest.raises(NotImplementedError, match="left to the model"):
        scoring._attention(None, states, states, states, None, packing=None, **{extra: torch.ones(1)})


def test_attention_drops_out_in_training_as_the_model_would():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        MistralConfig(**SIZES, **IDS, num_key_value_heads=2, sliding_window=None, attention_dropout=0.5)
    )
    backbone, tokens, mask = Backbone(model), torch.arange(2, 10).expand(4, 8), torch.ones(4, 8, dtype=torch.bool)
    assert scoring.can_pack(backbone)
    for training in (False, True):
        model.train(training)
        first, again = (
            scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask))["log_prob"] for _ in range(2)
        )
        assert torch.equal(first, again) != training


def test_the_models_own_attention_is_back_afterwards_even_after_an_error(model_of):
    backbone = Backbone(model_of("gpt2"))
    assert scoring.can_pack(backbone)
    tokens, mask = torch.full((1, 70), 5), torch.ones(1, 70, dtype=torch.bool)
    with pytest.raises(IndexError):
        scoring.score(backbone, scoring.ScoringInputs([[5]], tokens, mask))  # beyond the last position
    assert backbone.config._attn_implementation == "sdpa"
