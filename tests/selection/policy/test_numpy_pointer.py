"""The numpy forward pass against the network itself, with weights far from their start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.marks import slow_but

from groupwise_selection.policy.choices import draw_choices
from groupwise_selection.policy.config import Pointer
from groupwise_selection.policy.network import PointerNetwork, Pools
from groupwise_selection.policy.numpy_pointer import NumpyPointer

SIZE, ANSWERS, POOL, SHOTS = 6, 8, 9, 5


def network(stop: bool, dtype: torch.dtype, noise: float = 0.5, num_layers: int = 1) -> PointerNetwork:
    torch.manual_seed(0)
    found = PointerNetwork(
        SIZE, Pointer(width=12, num_heads=3, num_layers=num_layers, answer_size=ANSWERS, scale=2.0), stop=stop
    ).to(dtype)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return found


def pools(num: int, dtype: torch.dtype) -> Pools:
    def unit(*shape: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1).to(dtype)

    return Pools(
        unit(num, SIZE), unit(num, POOL, SIZE), unit(num, POOL, ANSWERS), torch.ones(num, POOL, dtype=torch.bool)
    )


@pytest.mark.parametrize("num_layers", slow_but((3,), (1, 3)))
@pytest.mark.parametrize("stop", slow_but((True,), (False, True)))
@pytest.mark.parametrize(("dtype", "noise", "tolerance"), [(torch.float64, 0.5, 1e-10), (torch.float32, 0.1, 1e-5)])
def test_every_pick_and_its_distribution_equal_the_networks(stop, dtype, noise, tolerance, num_layers):
    live = network(stop, dtype, noise, num_layers)
    given = pools(40, dtype)
    with torch.no_grad():
        choices = draw_choices(live, live.encode(given), SHOTS, None, torch.ones(40, dtype=torch.float64))
    ours = NumpyPointer({name: value.numpy() for name, value in live.state_dict().items()}, live.config.num_heads)
    lengths = set()
    for row in range(40):
        picks, logits = ours.picks(given.query[row].numpy(), given.pool[row].numpy(), given.answers[row].numpy(), SHOTS)
        assert picks == [pick for pick in choices.picks[row].tolist() if pick >= 0]
        for place, values in enumerate(logits):
            log_probs = values - np.log(np.exp(values - values.max()).sum()) - values.max()
            np.testing.assert_allclose(
                log_probs, choices.log_probs[row, place].double().numpy(), atol=tolerance, rtol=tolerance
            )
        lengths.add(len(picks))
    if noise == 0.5:
        assert (min(lengths) < SHOTS) == stop


def test_the_picks_come_from_the_weights_and_not_from_similarity_alone():
    live, given = network(False, torch.float64), pools(40, torch.float64)
    ours = NumpyPointer({name: value.numpy() for name, value in live.state_dict().items()}, live.config.num_heads)
    nearest = [np.argsort(-(given.pool[row] @ given.query[row]).numpy())[:SHOTS].tolist() for row in range(40)]
    assert (
        sum(
            ours.picks(given.query[row].numpy(), given.pool[row].numpy(), given.answers[row].numpy(), SHOTS)[0]
            == nearest[row]
            for row in range(40)
        )
        < 10
    )
