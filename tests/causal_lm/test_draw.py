"""Drawing tokens: uniforms, truncation, inverse cumulative distribution."""

from __future__ import annotations

import numpy as np
import torch

from groupwise.causal_lm.decode import draw, truncation_mask, uniforms


def test_splitmix_matches_its_published_first_output():
    """The first output of splitmix64 seeded with 0 is 0xE220A8397B1DCDAF (Vigna's reference code)."""
    from groupwise.causal_lm import decode as module

    with np.errstate(over="ignore"):
        assert int(module._mix(np.array([0], dtype=np.uint64) + module._GOLDEN)[0]) == 0xE220A8397B1DCDAF


def test_uniforms_are_uniform_independent_and_keyed_by_the_seed():
    u = uniforms(range(400), 100)
    assert u.dtype == torch.float64
    assert u.min() > 0
    assert u.max() < 1
    assert abs(u.mean().item() - 0.5) < 5 / (12 * 40000) ** 0.5
    counts = torch.histc(u.float(), 20, 0, 1)
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square with 19 degrees of freedom, 1 in 1000
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].item()) < 0.025
    assert torch.equal(uniforms([-1, 2**64 + 5], 3), uniforms([2**64 - 1, 5], 3))


def test_draw_follows_the_masses_and_never_takes_a_zero():
    p = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    tokens = draw(p.expand(20000, 6) * 7, uniforms([0], 20000)[0])
    share = torch.bincount(tokens, minlength=6) / 20000
    assert share[[0, 2, 5]].sum() == 0
    assert torch.allclose(share, p, atol=0.015)
    edges = draw(p.expand(4, 6), torch.tensor([2.0**-49, 0.2, 0.7, 1 - 2.0**-49], dtype=torch.float64))
    assert edges.tolist() == [1, 3, 4, 4]


def test_top_k_and_top_p_by_hand():
    log_p = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert truncation_mask(log_p, 2, 1.0).tolist() == [[False, True, False, True]]
    assert truncation_mask(log_p, 0, 0.71).tolist() == [[False, True, True, True]]
    assert truncation_mask(log_p, 0, 0.69).tolist() == [[False, True, False, True]]
    # top-p acts on what top-k left: .4 / .7 = .571
    assert truncation_mask(log_p, 2, 0.57).tolist() == [[False, True, False, False]]
    assert truncation_mask(log_p, 1, 1e-9).sum() == 1
    assert truncation_mask(log_p, 0, 1.0) is None
    assert truncation_mask(log_p, 4, 1.0) is None
