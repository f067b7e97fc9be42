"""The sampler: what it keeps is what a rescoring finds, and a member depends on nothing but its prompt and its seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.decode import DistributionError, truncation_mask
from groupwise.causal_lm.sampler import GroupBatch, sample
from groupwise.causal_lm.scoring import can_pack
from groupwise.config import ConfigError

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [5, 29, 30, 2]]
FAMILIES = ["gpt2", "qwen3", "gemma2", "phi", "cohere", "moe"]


def settings(**changes) -> SamplingConfig:
    return SamplingConfig(**{"max_new_tokens": 12, **changes})


def rescored(model, prompt, tokens, temperature):
    """Log-probs of one member by the plain forward of the unpadded row: ``[n, V]``."""
    ids = torch.tensor([list(prompt) + list(tokens)])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(logits / temperature, -1)


SYSTEM = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]
SHARED = [[*SYSTEM, 5, 6, 7], [*SYSTEM, 12], [*SYSTEM, 5, 29, 30, 2, 3]] * 6
"""Prompts of several lengths that begin alike, long enough that forwarding the beginning once saves something."""


def families() -> list[Any]:
    """Every family with prompts of its own; those that begin alike with two families, and in CI with all."""
    cases = [("gpt2", torch.float64, 1e-10)] + [(family, torch.float32, 1e-4) for family in FAMILIES]
    return [
        pytest.param(*case, prompts, marks=pytest.mark.slow if prompts is SHARED and place > 1 else ())
        for place, case in enumerate(cases)
        for prompts in (PROMPTS, SHARED)
    ]


@pytest.mark.parametrize(("family", "dtype", "tolerance", "prompts"), families())
def test_kept_fields_equal_a_rescoring_of_each_row(model_of, family, dtype, tolerance, prompts):
    model = model_of(family, dtype)
    out = sample(
        Backbone(model),
        GroupBatch(
            prompts,
            4,
            settings(temperature=0.8),
            range(4 * len(prompts)),
            requires=("log_prob", "entropy", "score_norm"),
        ),
    )
    lengths = out.length.tolist()
    assert len(set(lengths)) > 1  # some members left the batch early
    for member, tokens in enumerate(out.token_lists()):
        log_p = rescored(model, prompts[member // 4], tokens, 0.8)
        p, n = log_p.exp(), len(tokens)
        picked = log_p.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        torch.testing.assert_close(out.log_prob[member, :n], picked, rtol=0, atol=tolerance)
        torch.testing.assert_close(out.entropy[member, :n], -(p * log_p).sum(1), rtol=0, atol=3 * tolerance)
        norm = (torch.nn.functional.one_hot(torch.tensor(tokens), 31) - p).norm(dim=1)
        torch.testing.assert_close(out.score_norm[member, :n], norm, rtol=0, atol=30 * tolerance)
        assert not out.log_prob[member, n:].any()
        assert out.mask[member].tolist() == [True] * n + [False] * (out.mask.shape[1] - n)
        assert out.truncated[member].item() == (tokens[-1] != 1)
        assert 1 not in tokens[:-1]
    assert out.behaviour_log_prob is None
    assert out.tokens.shape[1] == max(lengths)


@pytest.mark.parametrize("prompts", [SHARED, [SHARED[0]] * 18], ids=["several_lengths", "the_same_prompt"])
def test_what_prompts_begin_with_is_forwarded_once(model_of, prompts, monkeypatch):
    backbone, forwarded = Backbone(model_of("qwen3", torch.float64)), []
    assert can_pack(backbone)
    forward = backbone.forward
    monkeypatch.setattr(
        backbone, "forward", lambda ids, **inputs: forwarded.append(ids.shape) or forward(ids, **inputs)
    )
    out = sample(backbone, GroupBatch(prompts, 1, settings(max_new_tokens=1, greedy=True), range(18)), tokenizer=None)
    common = len(SYSTEM) if prompts is SHARED else len(prompts[0]) - 1
    assert forwarded == [(1, common), (18, max(map(len, prompts)) - common)]
    single = [
        sample(backbone, GroupBatch([prompt], 1, settings(max_new_tokens=1, greedy=True), [0])) for prompt in prompts
    ]
    torch.testing.assert_close(out.log_prob, torch.cat([one.log_prob for one in single]), rtol=0, atol=1e-12)


def test_a_member_depends_only_on_its_prompt_and_seed(model_of):
    backbone = Backbone(model_of("gpt2", torch.float64))
    seeds = [101, 102, 103, 104, 105, 106]
    together = sample(backbone, GroupBatch(PROMPTS, 2, settings(), seeds)).token_lists()
    for member in range(6):
        alone = sample(backbone, GroupBatch([PROMPTS[member // 2]], 1, settings(), [seeds[member]]))
        assert alone.token_lists()[0] == together[member]
    backwards = sample(backbone, GroupBatch(PROMPTS[::-1], 2, settings(), seeds[::-1])).token_lists()
    assert backwards[::-1] == together
    in_parts = sample(backbone, GroupBatch(PROMPTS, 2, settings(), seeds), max_members=2)
    assert in_parts.token_lists() == together
    torch.testing.assert_close(
        in_parts.log_prob, sample(backbone, GroupBatch(PROMPTS, 2, settings(), seeds)).log_prob, rtol=0, atol=1e-12
    )
    assert sample(backbone, GroupBatch(PROMPTS, 2, settings(), range(6))).token_lists() != together


def test_the_first_token_has_the_models_distribution(model_of):
    model = model_of("qwen3")
    out = sample(
        Backbone(model), GroupBatch([[5, 6, 7]], 4000, settings(max_new_tokens=1, temperature=2.0), range(4000))
    )
    p = rescored(model, [5, 6, 7], [0], 2.0).exp()[0]
    share = torch.bincount(out.tokens[:, 0], minlength=31) / 4000
    assert (share - p).abs().max() < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize("truncation", [{"top_k": 3}, {"top_p": 0.6}, {"top_k": 5, "top_p": 0.8}])
def test_truncated_sampling_records_both_distributions(model_of, truncation):
    model = model_of("gpt2", torch.float64)
    out = sample(Backbone(model), GroupBatch(PROMPTS, 3, settings(temperature=1.5, **truncation), range(9)))
    differs = False
    for member, tokens in enumerate(out.token_lists()):
        log_p = rescored(model, PROMPTS[member // 3], tokens, 1.5)
        keep = truncation_mask(log_p, truncation.get("top_k", 0), truncation.get("top_p", 1.0))
        left = torch.log_softmax(log_p.masked_fill(~keep, float("-inf")), -1)
        pick = torch.tensor(tokens)[:, None]
        torch.testing.assert_close(out.log_prob[member, : len(tokens)], log_p.gather(1, pick)[:, 0], rtol=0, atol=1e-10)
        torch.testing.assert_close(
            out.behaviour_log_prob[member, : len(tokens)], left.gather(1, pick)[:, 0], rtol=0, atol=1e-10
        )
        differs |= bool((log_p.gather(1, pick) - left.gather(1, pick)).abs().max() > 0.01)
    assert differs


def test_dropout_is_off_and_modes_come_back(model_of):
    model = model_of("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    backbone = Backbone(model)
    expected = sample(backbone, GroupBatch(PROMPTS, 2, settings(), range(6)))
    model.train()
    out = sample(backbone, GroupBatch(PROMPTS, 2, settings(), range(6)))
    assert out.token_lists() == expected.token_lists()
    assert model.training
    assert not out.log_prob.requires_grad


def test_a_conversation_goes_on_with_masked_environment_tokens(model_of):
    model = model_of("gpt2", torch.float64)
    answers = {0: [[20, 21, 22], []], 1: [[23]], 3: [[24] * 30]}
    turns: dict[int, list[list[int]]] = {}

    def continue_with(member, turn):
        turns.setdefault(member, []).append(turn)
        return answers[member].pop(0) if answers.get(member) else None

    out = sample(
        Backbone(model),
        GroupBatch(
            PROMPTS[:2], 2, settings(max_new_tokens=24, max_turn_tokens=4), range(4), continue_with=continue_with
        ),
    )
    rows = out.token_lists()
    first = len(turns[0][0])
    assert rows[0][first : first + 3] == [20, 21, 22]
    assert out.mask[0, : first + 3].tolist() == [True] * first + [False] * 3
    assert [t for turn in turns[0] for t in turn] == [
        t for t, m in zip(rows[0], out.mask[0].tolist(), strict=False) if m
    ]
    assert len(turns[0]) == 3
    assert len(turns[1]) == 2
    assert len(turns[2]) == 1
    assert all(len(turn) <= 4 for member in turns.values() for turn in member)
    # An answer longer than what is left ends at the limit, as a truncated member.
    assert len(rows[3]) == 24
    assert rows[3][-1] == 24
    assert out.truncated[3]
    for member, tokens in enumerate(rows):
        log_p = rescored(model, PROMPTS[member // 2], tokens, 1.0).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        mask = out.mask[member, : len(tokens)]
        torch.testing.assert_close(out.log_prob[member, : len(tokens)], log_p * mask, rtol=0, atol=1e-10)
    # A member without an answer is not touched by its neighbours' conversations.
    alone = sample(Backbone(model), GroupBatch([PROMPTS[1]], 1, settings(max_new_tokens=24, max_turn_tokens=4), [2]))
    assert alone.token_lists()[0] == rows[2]


def test_bad_input_is_named(model_of):
    backbone = Backbone(model_of("gpt2"))
    with pytest.raises(ConfigError, match="no tokens"):
        sample(backbone, GroupBatch([[]], 1, settings(), [0]))
    with pytest.raises(ConfigError, match=r"context of 64; write max_new_tokens = 57"):
        sample(backbone, GroupBatch(PROMPTS, 1, settings(max_new_tokens=58), range(3)))
    with pytest.raises(ValueError, match="give 6, one a member"):
        sample(backbone, GroupBatch(PROMPTS, 2, settings(), range(3)))
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        sample(backbone, GroupBatch(PROMPTS, 1, settings(stop=("x",)), range(3)))
    backbone.model.generation_config.eos_token_id = backbone.model.config.eos_token_id = None
    with pytest.raises(ConfigError, match="end-of-sequence"):
        sample(backbone, GroupBatch(PROMPTS, 1, settings(), range(3)))


@pytest.mark.parametrize("changes", [{}, {"greedy": True}, {"top_k": 5}])
def test_a_model_that_gives_nan_is_named_instead_of_an_index(model_of, changes):
    model = model_of("gpt2", torch.float32)
    backbone = Backbone(model)
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = float("nan")
    with pytest.raises(ConfigError, match="NaN or infinite"):
        Backbone(model)
    with pytest.raises(
        DistributionError,
        match=(
            r"not finite for 4 of 4 members \(first: prompt 0 of the batch, member 0, token 0.*optimiser.learning_rate"
        ),
    ):
        sample(backbone, GroupBatch(PROMPTS[:1], 4, settings(**changes), range(4)))


@pytest.mark.parametrize("family", ["llama", "phi"])
def test_the_member_whose_numbers_break_is_named_with_its_place(model_of, family):
    model = model_of(family)
    backbone = Backbone(model)
    seen = sample(backbone, GroupBatch(PROMPTS[:2], 3, settings(), range(6)))
    # Neither ties its head to the embedding, so a token whose embedding is NaN breaks the member that drew it, one
    # token later.
    counts = seen.tokens.flatten().bincount(minlength=31)
    member, step, token = next(
        (m, t, row[t])
        for m, row in enumerate(seen.token_lists())
        for t in range(len(row) - 1)
        if counts[row[t]] == 1 and not any(row[t] in p for p in PROMPTS)
    )
    with torch.no_grad():
        model.get_input_embeddings().weight[token] = float("nan")
    with pytest.raises(
        DistributionError,
        match=rf"for 1 of 6 members \(first: prompt {member // 3} of the batch, member {member % 3}, token {step + 1},",
    ):
        sample(backbone, GroupBatch(PROMPTS[:2], 3, settings(), range(6)))
