"""Configuration objects are frozen, strict and closed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.config import Config


class Clip(Config):
    low: float = 0.2
    num: int = 1


def test_nothing_is_coerced_added_or_changed():
    assert Clip(low=1).low == 1.0
    for wrong in ({"low": "0.1"}, {"num": 1.0}, {"num": True}, {"high": 1.0}):
        with pytest.raises(ValidationError):
            Clip(**wrong)
    with pytest.raises(ValidationError):
        Clip().low = 0.3
