"""What every divergence shares: a schedule for beta, what against, and where."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.objective.divergence import K3


def test_a_plain_number_is_a_constant_beta() -> None:
    penalty = K3(beta=0.1)
    assert penalty.beta.at(0) == penalty.beta.at(1000) == 0.1
    assert K3().beta.at(0) == 0.04
    assert (penalty.against, penalty.place) == ("reference", "loss")


def test_place_is_one_of_two() -> None:
    with pytest.raises(ValidationError, match="place"):
        K3(place="elsewhere")
