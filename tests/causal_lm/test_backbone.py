"""A model taken apart at its head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from tests.causal_lm.test_families import COMMON, DECODERS, RECURRENT
from transformers import CONFIG_MAPPING

from groupwise.causal_lm.backbone import Backbone, router_remark
from groupwise.config import ConfigError

IDS = torch.tensor([[3, 9, 4, 7, 30, 2]])


@pytest.mark.parametrize(
    ("family", "scale", "softcap"),
    [
        ("gpt2", 1, None),
        ("qwen3", 1, None),
        ("llama", 1, None),
        ("gemma2", 1, 2.0),
        ("granite", 4, None),
        ("cohere", 0.0625, None),
        ("phi", 1, None),
        ("moe", 1, None),
    ],
)
def test_scores_are_those_of_the_models_own_logits(model_of, family, scale, softcap):
    model = model_of(family)
    backbone = Backbone(model)
    assert (backbone.scale, backbone.softcap) == (scale, softcap)
    expected = torch.log_softmax(model(IDS).logits[0, :-1] / 0.7, -1).gather(1, IDS[0, 1:, None])[:, 0]
    hidden = backbone.hidden(IDS, use_cache=False)[0, :-1]
    scores = backbone.scores(hidden, IDS[0, 1:], frozenset({"log_prob"}), 0.7)
    torch.testing.assert_close(scores["log_prob"], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(backbone.logits(hidden), model(IDS).logits[0, :-1], rtol=1e-5, atol=1e-5)


def test_an_adapter_is_in_the_hidden_states_and_off_when_disabled(model_of):
    model = model_of("llama")
    plain = Backbone(model).hidden(IDS)
    adapted = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))
    backbone = Backbone(adapted)
    assert (backbone.hidden(IDS) - plain).abs().max() > 1e-3
    with adapted.disable_adapter():
        torch.testing.assert_close(backbone.hidden(IDS), plain)


def test_models_without_a_separate_head_are_refused(model_of):
    with pytest.raises(ConfigError, match="lm_head out of target_modules"):
        Backbone(get_peft_model(model_of("llama"), LoraConfig(target_modules=["lm_head"])))
    # Merged, the adapter would change the head as well: a saved model was another one than was trained.
    with pytest.raises(ConfigError, match="embed_tokens out of target_modules"):
        Backbone(get_peft_model(model_of("qwen3"), LoraConfig(target_modules=["embed_tokens", "q_proj"])))
    Backbone(get_peft_model(model_of("llama"), LoraConfig(target_modules=["embed_tokens"])))
    with pytest.raises(ConfigError, match="virtual tokens"):
        Backbone(get_peft_model(model_of("llama"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)))
    broken = model_of("granite")
    broken.config.logits_scaling, hidden_scale = 0.25, 3.0
    original = broken.forward

    def scaled(*args, **kwargs):
        out = original(*args, **kwargs)
        out.logits = out.logits * hidden_scale
        return out

    broken.forward = scaled
    with pytest.raises(ConfigError, match="not supported"):
        Backbone(broken)


def test_a_cap_that_small_logits_do_not_show_is_found_or_refused(model_of):
    quiet = model_of("gemma2")
    quiet.config.final_logit_softcapping = 30.0
    with torch.no_grad():
        quiet.lm_head.weight.mul_(1e-3)
    assert quiet(IDS).logits.abs().max() < 0.5
    assert Backbone(quiet).softcap == 30.0
    assert not quiet.lm_head._forward_pre_hooks
    # The same cap, but nothing in the configuration speaks of it.
    hidden = model_of("llama")
    with torch.no_grad():
        hidden.lm_head.weight.mul_(1e-3)
    original = hidden.forward

    def capped(*args, **kwargs):
        out = original(*args, **kwargs)
        out.logits = 30 * torch.tanh(out.logits / 30)
        return out

    hidden.forward = capped
    with pytest.raises(ConfigError, match="not supported"):
        Backbone(hidden)


def test_modes_are_restored_module_by_module(model_of):
    model = model_of("gpt2").train()
    model.transformer.h[0].eval()
    backbone = Backbone(model)
    before = [module.training for module in model.modules()]
    with backbone.evaluating():
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == before


def test_autocast_casts_weights_once_while_nothing_changes_and_anew_afterwards(model_of):
    model = model_of("qwen3")
    backbone = Backbone(model)

    def logits():
        with backbone.evaluating():
            first = model(IDS).logits
            # Inside the block a weight is known to stay: what was cast is used again, which this change shows.
            saved = model.model.layers[0].mlp.up_proj.weight.clone()
            model.model.layers[0].mlp.up_proj.weight.zero_()
            again = model(IDS).logits
            model.model.layers[0].mlp.up_proj.weight.copy_(saved)
        return first, again

    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        first, again = logits()
        assert torch.equal(first, again)
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight.mul_(3)
        moved, _ = logits()
        assert not torch.is_autocast_cache_enabled()
        assert not torch.equal(model(IDS).logits, first)
    assert not torch.equal(moved, first)
    assert not torch.equal(*logits())


# That no loss balances the experts is said, of the families that have experts and of no others.


@pytest.mark.parametrize("family", [*DECODERS, *RECURRENT])
def test_only_mixtures_of_experts_get_the_remark_on_routers(family: str) -> None:
    if family not in CONFIG_MAPPING:
        pytest.skip("not in this transformers")
    sizes: dict[str, Any] = {**DECODERS, **RECURRENT}[family]
    said = router_remark(CONFIG_MAPPING[family](**sizes, **COMMON))
    assert bool(said) == (
        family in {"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "jamba", "qwen3_next"}
    )
    if family == "mixtral":
        assert "a mixture of 4 experts, whose router learns from the objective alone" in said
        assert "router_aux_loss_coef = 0.001 in its config.json has no effect" in said
