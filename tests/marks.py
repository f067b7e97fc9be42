"""Which cases of a test run where."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases of `parametrize`, of which only the quick ones run in `make test`; a tuple is several arguments."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in quick else pytest.mark.slow)
        for case in cases
    ]
