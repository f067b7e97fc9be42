"""Scores of completions under the live model, against one plain forward of each unpadded row."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.learner.local import checkpoint_activations

FIELDS = ("log_prob", "entropy", "score_norm")
PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 9], [12, 13], [12, 13], [4]]
LENGTHS = [4, 7, 1, 6, 3]


def case():
    g = torch.Generator().manual_seed(3)
    tokens = torch.randint(2, 31, (5, 9), generator=g)
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    mask[1, 2:4] = False  # an environment's tokens
    mask[3, 0] = False
    return tokens, mask


def plain(model, tokens, mask, temperature):
    """Row by row, no padding, no head of ours: ``{field: [B, T]}`` with gradient."""
    out = {name: [] for name in FIELDS}
    for prompt, row, m, n in zip(PROMPTS, tokens, mask, LENGTHS, strict=True):
        logits = model(torch.cat([torch.tensor(prompt), row[:n]])[None]).logits[0, len(prompt) - 1 : -1]
        log_p = torch.log_softmax((logits if logits.dtype == torch.float64 else logits.float()) / temperature, -1)
        p, pick = log_p.exp(), row[:n, None]
        norm = (torch.nn.functional.one_hot(pick[:, 0], 31) - p).square().sum(1).sqrt()
        for name, value in zip(FIELDS, (log_p.gather(1, pick)[:, 0], -(p * log_p).sum(1), norm), strict=True):
            out[name].append(torch.nn.functional.pad(value * m[:n], (0, 9 - n)))
    return {name: torch.stack(rows) for name, rows in out.items()}


def cotangents_for(mask, dtype):
    g = torch.Generator().manual_seed(4)
    return {name: torch.randn(mask.shape, generator=g, dtype=torch.float64).to(dtype) for name in FIELDS}


def gradient_of(model, fields, cotangents):
    model.zero_grad(set_to_none=True)
    sum((fields[name] * cotangents[name]).sum() for name in fields).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("pack", [False, True], ids=["rows", "packed"])
@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [
        ("gpt2", torch.float64, 1e-10),
        ("gpt2", torch.float32, 2e-5),
        ("qwen3", torch.float32, 2e-5),
        ("llama", torch.float32, 2e-5),
        ("gemma2", torch.float32, 2e-5),
        ("phi", torch.float32, 2e-5),
        ("cohere", torch.float32, 2e-5),
        ("moe", torch.float32, 2e-5),
    ],
)
def test_padded_and_packed_equal_single_rows_in_value_and_gradient(model_of, family, dtype, tolerance, pack):
    model = model_of(family, dtype)
    backbone = Backbone(model)
    tokens, mask = case()
    cotangents = cotangents_for(mask, dtype)
    expected = plain(model, tokens, mask, 0.7)
    theirs = gradient_of(model, expected, cotangents)
    ours = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, FIELDS, temperature=0.7), pack=pack)
    for name in FIELDS:
        torch.testing.assert_close(ours[name], expected[name], rtol=0, atol=tolerance)
    mine = gradient_of(model, ours, cotangents)
    model.zero_grad(set_to_none=True)
    known = scoring.backward(
        backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, temperature=0.7), cotangents, pack=pack
    )
    for name in FIELDS:
        torch.testing.assert_close(known[name], expected[name], rtol=0, atol=tolerance)
        assert not known[name].requires_grad
    largest = max(g.abs().max().item() for g in theirs.values())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=tolerance * largest)
        torch.testing.assert_close(parameter.grad, theirs[name], rtol=0, atol=tolerance * largest)


def test_positions_no_loss_reads_never_reach_the_head(model_of, monkeypatch):
    backbone = Backbone(model_of("gpt2"))
    tokens, mask = case()
    seen = []
    original = backbone.scores
    monkeypatch.setattr(
        Backbone, "scores", lambda self, hidden, *rest: (seen.append(len(hidden)), original(hidden, *rest))[1]
    )
    scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask))
    assert seen == [int(mask.sum())]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_packed_rows_hold_each_prompt_once_and_no_padding(model_of, family):
    backbone = Backbone(model_of(family))
    tokens, mask = case()
    seen = []
    backbone.body.get_input_embeddings().register_forward_hook(lambda module, args, out: seen.append(args[0].numel()))
    scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask))
    assert seen[-1] == 5 + 2 + 1 + 3 + 6 + 0 + 5 + 2
    scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask), pack=False)
    assert seen[-1] == 5 * 11


def test_what_lies_beyond_a_member_is_ignored(model_of):
    backbone = Backbone(model_of("gpt2", torch.float64))
    tokens, mask = case()
    other = tokens.clone()
    other[torch.arange(9) >= torch.tensor(LENGTHS)[:, None]] = 17
    for pack in (False, True):
        a = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask), pack=pack)["log_prob"]
        b = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, other, mask), pack=pack)["log_prob"]
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_gradient_checkpointing_changes_nothing(model_of):
    tokens, mask = case()
    model = model_of("qwen3", attention_dropout=0.0).train()
    backbone = Backbone(model)
    cotangents = {"log_prob": cotangents_for(mask, torch.float32)["log_prob"]}
    expected = gradient_of(model, scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask)), cotangents)
    checkpoint_activations(model, True)
    for pack in (False, True):
        ours = gradient_of(
            model, scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask), pack=pack), cotangents
        )
        torch.testing.assert_close(ours, expected)


def test_bf16_autocast_keeps_fp32_fields_near_the_exact_ones(model_of):
    tokens, mask = case()
    model = model_of("qwen3")
    backbone = Backbone(model)
    exact = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, FIELDS))
    for pack in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            near = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, FIELDS), pack=pack)
            known = scoring.backward(
                backbone, scoring.ScoringInputs(PROMPTS, tokens, mask), {"log_prob": mask.float()}, pack=pack
            )
        assert near["log_prob"].dtype == torch.float32
        assert 0 < (near["log_prob"] - exact["log_prob"]).abs().max() < 0.3
        torch.testing.assert_close(known["log_prob"], near["log_prob"], rtol=0, atol=1e-5)
        near["log_prob"].sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        model.zero_grad()


def test_only_the_adapter_gets_a_gradient(model_of):
    model = get_peft_model(model_of("llama"), LoraConfig(target_modules="all-linear", init_lora_weights=False))
    backbone = Backbone(model)
    tokens, mask = case()
    cotangents = cotangents_for(mask, torch.float32)
    expected = gradient_of(
        model, scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, FIELDS), pack=False), cotangents
    )
    assert expected
    assert all("lora_" in name for name in expected)
    model.zero_grad(set_to_none=True)
    scoring.backward(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask), cotangents)
    torch.testing.assert_close(
        {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, expected, rtol=1e-4, atol=1e-4
    )


def test_an_empty_mask_is_legal_and_bad_shapes_are_named(model_of):
    backbone = Backbone(model_of("gpt2"))
    tokens, mask = case()
    out = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, torch.zeros_like(mask)))
    assert not out["log_prob"].any()
    scoring.backward(
        backbone, scoring.ScoringInputs(PROMPTS, tokens, torch.zeros_like(mask)), {"log_prob": mask.float()}
    )
    with pytest.raises(ValueError, match="4 prompts"):
        scoring.score(backbone, scoring.ScoringInputs(PROMPTS[:4], tokens, mask))
    with pytest.raises(ValueError, match="no tokens"):
        scoring.score(backbone, scoring.ScoringInputs([[], *PROMPTS[1:]], tokens, mask))


@pytest.mark.parametrize("pack", [False, True], ids=["rows", "packed"])
@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_bf16_weights_give_fp32_fields_of_their_own_rounded_states(model_of, family, pack):
    backbone = Backbone(model_of(family).bfloat16())
    tokens, mask = case()
    found = scoring.score(backbone, scoring.ScoringInputs(PROMPTS, tokens, mask, FIELDS), pack=pack)
    exact = plain(model_of(family).bfloat16().float(), tokens, mask, 1.0)
    for name in FIELDS:
        assert found[name].dtype == torch.float32
        # Half precision in the layers, none in the head: nothing is rounded to the 0.03 that bf16 has between 4 and 8
        # nats.
        assert 0 < (found[name] - exact[name]).abs().max() < 0.5
    assert (found["log_prob"] != found["log_prob"].bfloat16().float()).sum() > mask.sum() // 2
