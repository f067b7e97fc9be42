"""The written-out pass against the model's own, in value and in every gradient."""

from __future__ import annotations

import pytest
import torch
from tests.causal_lm.test_fused import CONFIGS, build

from groupwise.causal_lm import fused_pass, scoring
from groupwise.causal_lm.backbone import Backbone

PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 9], [12, 13], [4]]
FED = torch.tensor([3, 6, 0, 4])


@pytest.mark.parametrize("name", CONFIGS)
def test_values_and_gradients_equal_the_models_own(name):
    model = build(name)
    backbone = Backbone(model)
    g = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 31, (4, 7), generator=g)
    rows = [
        torch.cat([torch.tensor(prompt), row[:n]]) for prompt, row, n in zip(PROMPTS, tokens, FED.tolist(), strict=True)
    ]
    wanted = [torch.randn(int(n) + 1, 16, generator=g) for n in FED]

    def gradients(states):
        model.zero_grad(set_to_none=True)
        sum((s * w).sum() for s, w in zip(states, wanted, strict=True)).backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    theirs = [
        model.model(row[None]).last_hidden_state[0, len(prompt) - 1 :]
        for row, prompt in zip(rows, PROMPTS, strict=True)
    ]
    expected = gradients(theirs)
    assert scoring.can_pack(backbone)
    assert fused_pass.serves(backbone)
    states, place = scoring.hidden(backbone, PROMPTS, tokens, FED)
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
