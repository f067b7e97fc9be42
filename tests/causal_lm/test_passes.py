"""Forward passes of other forms than the model own: packed, fused, decoded, in shards."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.causal_lm.sizes import IDS, SIZES
from tests.learner.one_process import sharding
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from groupwise.causal_lm import decode, fused_pass, scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.decode import FusedDecoder, prefill
from groupwise.causal_lm.sharded import ShardedLM
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.config import ConfigError
from groupwise.domain.language.config import DataConfig, LanguageConfig, Pretrained
from groupwise.domain.language.data import Splits
from groupwise.domain.language.policy import open_policy
from groupwise.domain.language.source import Cups
from groupwise.learner.local import checkpoint_activations
from groupwise.learner.shards import local_part, process_mesh
from groupwise.streams import Streams

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


# The written-out pass against the model's own, in value and in every gradient.


FUSED_PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 9], [12, 13], [4]]
FED = torch.tensor([3, 6, 0, 4])


@pytest.mark.parametrize("name", CONFIGS)
def test_values_and_gradients_equal_the_models_own(name):
    model = build(name)
    backbone = Backbone(model)
    g = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 31, (4, 7), generator=g)
    rows = [
        torch.cat([torch.tensor(prompt), row[:n]])
        for prompt, row, n in zip(FUSED_PROMPTS, tokens, FED.tolist(), strict=True)
    ]
    wanted = [torch.randn(int(n) + 1, 16, generator=g) for n in FED]

    def gradients(states):
        model.zero_grad(set_to_none=True)
        sum((s * w).sum() for s, w in zip(states, wanted, strict=True)).backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    theirs = [
        model.model(row[None]).last_hidden_state[0, len(prompt) - 1 :]
        for row, prompt in zip(rows, FUSED_PROMPTS, strict=True)
    ]
    expected = gradients(theirs)
    assert scoring.can_pack(backbone)
    assert fused_pass.serves(backbone)
    states, place = scoring.hidden(backbone, FUSED_PROMPTS, tokens, FED)
    ours = [states[place[m, : n + 1]] for m, n in enumerate(FED.tolist())]
    for mine, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=2e-5)
    found = gradients(ours)
    assert found.keys() == expected.keys()
    largest = max(value.abs().max().item() for value in expected.values())
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=2e-6 * largest)


def test_its_own_gradients_are_those_of_finite_differences():
    g = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for shape in ((3, 2, 6), (6,)))
    assert torch.autograd.gradcheck(lambda x, w: fused_pass._RmsNorm.apply(x, w, 1e-2), (x, weight))
    cos, sin = torch.randn(2, 3, 1, 6, generator=g, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: fused_pass._Rotation.apply(x, cos, sin), (x,))


def test_dropout_in_attention_and_hooks_go_through_the_model(model_of):
    dropping = Backbone(model_of("llama", attention_dropout=0.5))
    assert fused_pass.serves(dropping)
    dropping.model.train()
    assert not fused_pass.serves(dropping)
    hooked = Backbone(model_of("llama"))
    hooked.body.layers[1].register_forward_hook(lambda module, args, out: out)
    assert not fused_pass.serves(hooked)


# The fused decode step against the model's own forward pass, token by token.


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
    def is_fused(backbone: Backbone) -> bool:
        return isinstance(prefill(backbone, [[3, 4]], 1, 2)[1], FusedDecoder)

    assert is_fused(Backbone(model_of("llama")))
    assert not is_fused(Backbone(model_of("gpt2")))
    assert not is_fused(Backbone(model_of("gemma2")))
    assert not is_fused(Backbone(model_of("llama", torch.float64)))
    assert not is_fused(Backbone(model_of("llama", torch.bfloat16)))
    assert not is_fused(Backbone(model_of("llama", hidden_act="gelu")))
    assert not is_fused(
        Backbone(model_of("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}))
    )
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    assert not is_fused(Backbone(model_of("qwen3", **sliding)))
    assert not is_fused(Backbone(get_peft_model(model_of("llama"), LoraConfig(target_modules=["v_proj"]))))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_fused(Backbone(model_of("llama")))


# A model in shards of one process accumulates the gradients of a plain one, whichever of its weights are trained.


SHARDED_PROMPTS = [[3, 4], [5]]
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
    scoring.backward(plain, scoring.ScoringInputs(SHARDED_PROMPTS, TOKENS, MASK), COTANGENTS)
    expected = {
        name: parameter.grad for name, parameter in plain.model.named_parameters() if parameter.grad is not None
    }
    assert expected
    with sharding():
        sharded = ShardedLM(Backbone(model), process_mesh(torch.device("cpu")))
        sharded.backward(scoring.ScoringInputs(SHARDED_PROMPTS, TOKENS, MASK), COTANGENTS)
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
