"""IcePop: decisions outside the interval do not train, the others keep their weight."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from tests.objective.small import close

from groupwise.objective.correction import Interval


def test_outside_is_zero() -> None:
    log_weight = torch.tensor([[0.4, 0.6, 4.0, 6.0]], dtype=torch.float64).log()
    close(Interval(lower=0.5, upper=5.0)(log_weight, torch.ones(1, 4, dtype=torch.bool)), [[0.0, 0.6, 4.0, 0.0]])


def test_bounds_are_ordered() -> None:
    with pytest.raises(ValidationError, match="below upper"):
        Interval(lower=2.0, upper=1.0)


def test_both_ends_belong_to_it() -> None:
    ones, mask = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    assert Interval(lower=1.0, upper=2.0)(ones, mask).item() == 1.0
    assert Interval(lower=0.5, upper=1.0)(ones, mask).item() == 1.0
