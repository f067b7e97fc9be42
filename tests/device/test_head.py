"""The head on the device: its numbers against full logits in fp64, and its memory against what it is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.causal_lm import head
from groupwise.causal_lm.head import FIELDS, token_scores
from groupwise.causal_lm.head_tiles import Tiles
from groupwise.memory import peak_bytes

POSITIONS, WIDTH, VOCABULARY = 96, 32, 5000
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Logits of some units, each a sum of 32 products: in fp32 within 32 x 6e-8, in bfloat16 the cotangents of a logit are
rounded too, to 4e-3. Entropies and gradients are sums of 5,000 of these; tenfold for cancellation. fp32 products may be
tf32 where a machine was set so, 5e-4.
"""


def full(hidden: Tensor, weight: Tensor, target: Tensor) -> dict[str, Tensor]:
    log_p = torch.log_softmax(hidden @ weight.t(), -1)
    p = log_p.exp()
    log_prob = log_p.gather(1, target[:, None])[:, 0]
    return {
        "log_prob": log_prob,
        "entropy": -(p * log_p).sum(-1),
        "score_norm": (1 - 2 * log_prob.exp() + (p * p).sum(-1)).sqrt(),
    }


def case(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64).mul_(0.4).to(dtype).to(device)
        for rows in (POSITIONS, VOCABULARY)
    )
    return (
        hidden.requires_grad_(),
        weight.requires_grad_(),
        torch.randint(VOCABULARY, (POSITIONS,), generator=generator).to(device),
    )


def gradients(scores: dict[str, Tensor], *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sum(scores[name].sum() for name in FIELDS), leaves)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_values_and_gradients_are_those_of_full_logits(device: torch.device, dtype: torch.dtype) -> None:
    hidden, weight, target = case(device, dtype)
    found = token_scores(hidden, weight, target, FIELDS)
    exact = [leaf.detach().double().cpu().requires_grad_() for leaf in (hidden, weight)]
    expected = full(*exact, target.cpu())
    for name in FIELDS:
        torch.testing.assert_close(
            found[name].double().cpu(), expected[name], rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
        )
    for leaf, there, gradient in zip(
        (hidden, weight), gradients(found, hidden, weight), gradients(expected, *exact), strict=True
    ):
        assert there.dtype == leaf.dtype
        gap = (there.double().cpu() - gradient).norm() / gradient.norm()
        assert gap <= ROUNDING[dtype], float(gap)


def test_memory_does_not_grow_with_positions_times_vocabulary(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "tiles_of", lambda device: Tiles(1024, 1 << 15, 192 * 2**20))
    hidden, weight, target = case(device, torch.float32)

    def run() -> None:
        gradients(token_scores(hidden, weight, target, FIELDS), hidden, weight)

    # Once before: a device's library takes its workspace at the first product.
    run()
    tile, block = 4 * (1 << 15), 4 * 1024 * WIDTH
    # Both gradients, two tiles and what an operation on one makes beside them, a block of the weight with its gradient,
    # and some numbers a position.
    bound = hidden.nbytes + weight.nbytes + 6 * tile + 3 * block + 64 * 8 * POSITIONS
    found = peak_bytes(run, device)
    assert found <= bound
    assert bound < 4 * POSITIONS * VOCABULARY, "or full logits would pass"
