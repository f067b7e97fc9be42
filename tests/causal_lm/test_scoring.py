"""Scores of completions under the live model, against one plain forward of each unpadded row."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone

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


@pytest.mark.parametrize("share", [False, True], ids=["rows", "shared-prompts"])
@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [
        ("gpt2", torch.float64, 1e-10),
        ("gpt2", torch.float32, 2e-5),
        ("qwen3", torch.float32, 2e-5),
        ("llama", torch.float32, 2e-5),
        ("gemma2", torch.float32, 2e-5),
    ],
)
def test_padded_and_shared_equal_single_rows_in_value_and_gradient(model_of, family, dtype, tolerance, share):
    model = model_of(family, dtype)
    backbone = Backbone(model)
    tokens, mask = case()
    cotangents = cotangents_for(mask, dtype)
    expected = plain(model, tokens, mask, 0.7)
    theirs = gradient_of(model, expected, cotangents)
    ours = scoring.score(backbone, PROMPTS, tokens, mask, FIELDS, temperature=0.7, share_prompts=share)
    for name in FIELDS:
        torch.testing.assert_close(ours[name], expected[name], rtol=0, atol=tolerance)
    mine = gradient_of(model, ours, cotangents)
    model.zero_grad(set_to_none=True)
    known = scoring.backward(backbone, PROMPTS, tokens, mask, cotangents, temperature=0.7, share_prompts=share)
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
    monkeypatch.setattr(Backbone, "scores", lambda self, hidden, *rest: (seen.append(len(hidden)), original(hidden, *rest))[1])
    scoring.score(backbone, PROMPTS, tokens, mask)
    assert seen == [int(mask.sum())]


def test_shared_prompts_are_forwarded_once(model_of, monkeypatch):
    backbone = Backbone(model_of("qwen3"))
    tokens, mask = case()
    seen = []
    original = Backbone.forward
    monkeypatch.setattr(Backbone, "forward", lambda self, ids, **rest: (seen.append(tuple(ids.shape)), original(self, ids, **rest))[1])
    scoring.score(backbone, PROMPTS, tokens, mask, share_prompts=True)
    assert seen == [(3, 5), (5, 6)]
    seen.clear()
    scoring.score(backbone, PROMPTS, tokens, mask, share_prompts=False)
    assert seen == [(5, 11)]


def test_what_lies_beyond_a_member_is_ignored(model_of):
    backbone = Backbone(model_of("gpt2", torch.float64))
    tokens, mask = case()
    other = tokens.clone()
    other[torch.arange(9) >= torch.tensor(LENGTHS)[:, None]] = 17
    for share in (False, True):
        a = scoring.score(backbone, PROMPTS, tokens, mask, share_prompts=share)["log_prob"]
        b = scoring.score(backbone, PROMPTS, other, mask, share_prompts=share)["log_prob"]
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_gradient_checkpointing_changes_nothing(model_of):
    tokens, mask = case()
    model = model_of("qwen3", attention_dropout=0.0).train()
    backbone = Backbone(model)
    cotangents = {"log_prob": cotangents_for(mask, torch.float32)["log_prob"]}
    expected = gradient_of(model, scoring.score(backbone, PROMPTS, tokens, mask), cotangents)
    model.activation_checkpointing_enable()
    for share in (None, True):
        ours = gradient_of(model, scoring.score(backbone, PROMPTS, tokens, mask, share_prompts=share), cotangents)
        torch.testing.assert_close(ours, expected)


def test_bf16_autocast_keeps_fp32_fields_near_the_exact_ones(model_of):
    tokens, mask = case()
    model = model_of("qwen3")
    backbone = Backbone(model)
    exact = scoring.score(backbone, PROMPTS, tokens, mask, FIELDS)
    for share in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            near = scoring.score(backbone, PROMPTS, tokens, mask, FIELDS, share_prompts=share)
            known = scoring.backward(backbone, PROMPTS, tokens, mask, {"log_prob": mask.float()}, share_prompts=share)
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
    expected = gradient_of(model, scoring.score(backbone, PROMPTS, tokens, mask, FIELDS, share_prompts=False), cotangents)
    assert expected
    assert all("lora_" in name for name in expected)
    model.zero_grad(set_to_none=True)
    scoring.backward(backbone, PROMPTS, tokens, mask, cotangents)
    torch.testing.assert_close({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, expected, rtol=1e-4, atol=1e-4)


def test_an_empty_mask_is_legal_and_bad_shapes_are_named(model_of):
    backbone = Backbone(model_of("gpt2"))
    tokens, mask = case()
    out = scoring.score(backbone, PROMPTS, tokens, torch.zeros_like(mask))
    assert not out["log_prob"].any()
    scoring.backward(backbone, PROMPTS, tokens, torch.zeros_like(mask), {"log_prob": mask.float()})
    with pytest.raises(ValueError, match="4 prompts"):
        scoring.score(backbone, PROMPTS[:4], tokens, mask)
    with pytest.raises(ValueError, match="no tokens"):
        scoring.score(backbone, [[], *PROMPTS[1:]], tokens, mask)
