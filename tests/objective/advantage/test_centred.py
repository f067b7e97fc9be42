"""The reward less its group's mean."""

from __future__ import annotations

import pytest
from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import Centred


def test_difference_from_the_mean_of_the_present() -> None:
    assert advantages(Centred(), [1.0, 4.0, None], [0.1] * 3) == [-1.5, 1.5, 0.0, 0.0, 0.0, 0.0]


def test_bound() -> None:
    assert advantages(Centred(clip=1.0), [1.0, 4.0]) == pytest.approx([-1.0, 1.0])
