"""Times are spread over their parts, and moved by the shift."""

from __future__ import annotations

import pytest
import torch

from groupwise.config import ConfigError, validate
from groupwise.objective.noise import NoiseTimes


@pytest.mark.parametrize("levels", ["schedule", "uniform", "logit_normal"])
def test_one_time_lies_in_each_part(levels: str) -> None:
    uniform = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    time = validate(NoiseTimes, {"levels": levels, "num": 4, "low": 0.2, "high": 0.6}).at(uniform)
    assert bool((time.diff(dim=1) > 0).all())
    assert float(time.min()) > 0
    assert float(time.max()) < 1
    if levels != "logit_normal":
        for part in range(4):
            assert 0.2 + 0.1 * part <= float(time[:, part].min())
            assert float(time[:, part].max()) < 0.3 + 0.1 * part


def test_the_quartiles_of_logit_normal_times() -> None:
    # The quantiles 1/4 and 3/4 of a standard normal are -+0.6744898, whose sigmoids are 0.3374922 and its complement.
    time = NoiseTimes(levels="logit_normal", num=2).at(torch.full((1, 2), 0.5, dtype=torch.float64))
    assert time[0].tolist() == pytest.approx([0.3374922, 0.6625078], abs=1e-6)


def test_a_shift_without_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match="shift = 3 has no effect on levels = 'schedule'"):
        validate(NoiseTimes, {"shift": 3.0})
    with pytest.raises(ConfigError, match=r"low = 0\.5 must lie below high = 0\.5"):
        validate(NoiseTimes, {"low": 0.5, "high": 0.5})
