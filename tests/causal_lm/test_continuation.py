"""Continuations of prompts that begin alike, against one plain forward of each row."""

from __future__ import annotations

import pytest
import torch

from groupwise.causal_lm import continuation, scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.continuation import continuation_log_probs, shared_prefixes

SAME = [5, 6, 7, 8, 9, 10, 11, 12]
PROMPTS = [[*SAME, 3], [*SAME, 4, 2], [5, 6], SAME, [30], [*SAME, 3]]
CONTINUATIONS = [[[7]], [[8, 9, 4]], [[1, 2], [3], []], [[3], [4, 2, 7]], [[6, 6, 6, 6, 6]], [[7], [8]]]


def plain(model, prompt, own):
    if not own:
        return 0.0
    with torch.no_grad():
        log_p = model(torch.tensor([[*prompt, *own]])).logits[0].double().log_softmax(-1)
    return sum(log_p[len(prompt) - 1 + place, token].item() for place, token in enumerate(own))


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [("qwen3", torch.float64, 1e-9), ("gpt2", torch.float64, 1e-9), ("gemma2", torch.float32, 2e-4)],
)
def test_every_row_equals_a_plain_forward(model_of, family, dtype, tolerance, batch_tokens):
    model = model_of(family, dtype)
    found = continuation_log_probs(Backbone(model), PROMPTS, CONTINUATIONS, batch_tokens=batch_tokens)
    for prompt, own, values in zip(PROMPTS, CONTINUATIONS, found, strict=True):
        assert values == pytest.approx([plain(model, prompt, each) for each in own], abs=tolerance)


def test_dropout_is_off_and_the_mode_comes_back(model_of):
    model = model_of("gpt2", torch.float64, resid_pdrop=0.5, embd_pdrop=0.5).train()
    backbone = Backbone(model)
    assert continuation_log_probs(backbone, PROMPTS, CONTINUATIONS) == continuation_log_probs(
        backbone, PROMPTS, CONTINUATIONS
    )
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_shared_prefixes_are_those_worked_out_by_hand():
    # Alone 5 + 5; together 4 + 1 + 1.
    assert shared_prefixes([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], [1, 1]) == [4, 4]
    # Three continuations each: alone 5 + 5 for all of them; together 4 + 3 + 3 is no gain.
    assert shared_prefixes([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], [3, 3]) == [5, 5]
    # A short common beginning is not worth it, and a group ends where the next prompt would cost it more.
    assert shared_prefixes([[1, 2, 3], [1, 5, 6, 7]], [2, 2]) == [3, 4]
    assert shared_prefixes([[1, 2, 3, 4], [1, 2, 3, 5], [1, 9, 9, 9]], [1, 1, 1]) == [3, 3, 4]
    assert shared_prefixes([[1, 2], [1, 2, 3]], [1, 1]) == [2, 2]
    assert shared_prefixes([], []) == []


def test_a_common_beginning_goes_through_the_model_once(model_of, monkeypatch):
    fed = []
    score = scoring.score

    def seen(backbone, inputs):
        prompts = {tuple(prompt) for prompt in inputs.prompts}
        fed.append(sum(map(len, prompts)) + sum(int(row.nonzero().max()) for row in inputs.mask))
        return score(backbone, inputs)

    monkeypatch.setattr(continuation.scoring, "score", seen)
    backbone = Backbone(model_of("qwen3", torch.float64))
    continuation_log_probs(backbone, [[*SAME, 3], [*SAME, 4]], [[[7]], [[8]]])
    continuation_log_probs(backbone, [SAME], [[[7], [8], [9, 9]]])
    continuation_log_probs(backbone, [SAME, [30]], [[[7]], [[8]]], batch_tokens=8)
    # 8 + 1 + 1; 8 for three answers of which one has a token more; two passes.
    assert fed == [10, 9, 1, 8] or fed == [10, 9, 8, 1]


def test_an_empty_prompt_and_a_list_that_is_missing(model_of):
    backbone = Backbone(model_of("qwen3"))
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        continuation_log_probs(backbone, [[]], [[[1]]])
    with pytest.raises(ValueError, match="2 prompts and 1 lists of continuations"):
        continuation_log_probs(backbone, [[1], [2]], [[[1]]])
    assert continuation_log_probs(backbone, [], []) == []
