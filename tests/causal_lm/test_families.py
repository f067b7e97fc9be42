"""Which families are trained: a table. What is sampled is what a plain forward pass and both forms of scoring say; the
rest is refused by what it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.marks import slow_but
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, CausalLMConfig, SamplingConfig, TransformersEngine
from groupwise.causal_lm.loading import load
from groupwise.causal_lm.sampler import GroupBatch
from groupwise.causal_lm.scoring import ScoringInputs, score
from groupwise.causal_lm.small import character_tokenizer
from groupwise.config import ConfigError

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13]]
COMMON = {"vocab_size": 31, "eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
MIXTURE = {**GROUPED, "head_dim": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8}

DECODERS: dict[str, dict[str, Any]] = {
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 5},
    "gemma": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8, "sliding_window": 5},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neox": SIZES,
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    },
    "phi": GROUPED,
    "phi3": GROUPED,
    "olmo": GROUPED,
    "olmo2": GROUPED,
    "mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **GROUPED,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    },
    "qwen3_moe": {**MIXTURE, "num_experts": 4},
    "gpt_oss": {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    "deepseek_v3": {
        **{
            **SIZES,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
        },
        **{
            "head_dim": 4,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "first_k_dense_replace": 1,
        },
    },
}

STATE = {
    "mamba_d_ssm": 32,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_expand": 1,
    "mamba_chunk_size": 8,
}
RECURRENT: dict[str, dict[str, Any]] = {
    "falcon_h1": {**GROUPED, **STATE, "head_dim": 8},
    "bamba": {**GROUPED, **STATE, "attn_layer_indices": [1]},
    "jamba": {
        **{**GROUPED, "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2},
        **{"mamba_d_state": 8, "num_experts": 2, "num_experts_per_tok": 1, "use_mamba_kernels": False},
    },
    "mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
    "lfm2": {**GROUPED, "num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"]},
    "qwen3_next": {
        **{**MIXTURE, "num_hidden_layers": 4, "num_experts": 4, "shared_expert_intermediate_size": 8},
        **{
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    },
}


def build(family: str, sizes: dict[str, Any]) -> Any:
    """A random model whose distributions are far from flat; one that this transformers does not have is passed over."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**sizes, **COMMON), dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    return model


def check(model: Any, engine: BuiltinEngine | TransformersEngine) -> None:
    """Prompts of two lengths, so that one is padded; a wrong state or a padding that is read differs by tenths of a nat
    and more.
    """
    backbone = Backbone(model)
    drawn = engine.open(backbone, None).sample(GroupBatch(PROMPTS, 2, SamplingConfig(max_new_tokens=6), range(4)))
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    for member, tokens in enumerate(drawn.token_lists()):
        with torch.no_grad():
            logits = model(torch.tensor([prompts[member] + tokens]), use_cache=False).logits[
                0, len(prompts[member]) - 1 : -1
            ]
        plain = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        torch.testing.assert_close(drawn.log_prob[member, : len(tokens)], plain, rtol=0, atol=2e-5)
    for pack in (True, False):
        with torch.no_grad():
            again = score(backbone, ScoringInputs(prompts, drawn.tokens, drawn.mask), pack=pack)["log_prob"]
        torch.testing.assert_close(again, drawn.log_prob, rtol=0, atol=2e-5)


@pytest.mark.parametrize("family", slow_but(("gemma3_text", "mixtral", "gpt_neox", "phi3"), DECODERS))
def test_a_decoder_is_scored_as_it_was_sampled(family: str) -> None:
    check(build(family, DECODERS[family]), BuiltinEngine(max_members=3))


@pytest.mark.parametrize("family", slow_but(("falcon_h1",), RECURRENT))
def test_a_recurrent_or_hybrid_family_is_refused_with_what_to_write_and_that_is_right(family: str) -> None:
    model = build(family, RECURRENT[family])
    with pytest.raises(ConfigError, match=r'keeps a recurrent state .* write domain\.engine\.kind = "transformers"$'):
        BuiltinEngine().open(Backbone(model), None)
    check(model, TransformersEngine())


def test_a_family_whose_cache_the_sampler_hands_on_wrongly_is_refused() -> None:
    # Moshi sets its positions by the cache: with the built-in sampler its log-probs were wrong by more than a nat.
    moshi = {**GROUPED, "head_dim": 8, "ffn_dim": 24, "sliding_window": 5, "audio_vocab_size": 8, "num_codebooks": 2}
    model = build("moshi", moshi)
    with pytest.raises(
        ConfigError,
        match=(
            r"does not serve MoshiForCausalLM \(.*nats from those that scoring computes for the same tokens\); write"
            r' domain\.engine\.kind = "transformers"$'
        ),
    ):
        BuiltinEngine().open(Backbone(model), None)
    check(model, TransformersEngine())


def saved(folder: Path, family: str, kind: str, **sizes: Any) -> CausalLMConfig:
    config = CONFIG_MAPPING[family](**{**COMMON, **sizes})
    getattr(transformers, kind)(config).save_pretrained(folder)
    character_tokenizer("abcdef").save_pretrained(folder)
    return CausalLMConfig(path=str(folder))


@pytest.mark.parametrize(
    ("family", "kind", "sizes"),
    [
        (
            "t5",
            "T5ForConditionalGeneration",
            {"d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "decoder_start_token_id": 0},
        ),
        (
            "bart",
            "BartForConditionalGeneration",
            {
                "d_model": 16,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
                "bos_token_id": 2,
            },
        ),
    ],
)
def test_an_encoder_decoder_is_refused_by_its_configuration(
    tmp_path: Path, family: str, kind: str, sizes: dict[str, Any]
) -> None:
    config = saved(tmp_path, family, kind, **sizes)
    with pytest.raises(
        ConfigError,
        match=rf"is_encoder_decoder = true \(model_type = '{family}'\): .* give one, such as Qwen/Qwen2\.5-0\.5B$",
    ):
        load(config)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "BertLMHeadModel"), ("roberta", "RobertaForCausalLM"), ("electra", "ElectraForCausalLM")],
)
def test_an_encoder_is_refused_because_it_looks_ahead(tmp_path: Path, family: str, kind: str) -> None:
    config = saved(tmp_path, family, kind, **SIZES)
    with pytest.raises(
        ConfigError,
        match=(
            rf"^{kind} is an encoder: what it says of a token depends on the tokens after it, .* such as"
            r" Qwen/Qwen2\.5-0\.5B$"
        ),
    ):
        load(config)


def test_a_model_of_something_else_is_refused_by_its_type(tmp_path: Path) -> None:
    config = saved(tmp_path, "distilbert", "DistilBertModel", dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    with pytest.raises(ConfigError, match=r"no causal language model of model_type = 'distilbert'"):
        load(config)
