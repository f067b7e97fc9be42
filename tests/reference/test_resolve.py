"""What an unset reference becomes, and the contradictions that are refused."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.reference import AbsentReference, EmaReference, FrozenReference, resolve_reference


def test_unset_follows_the_objective() -> None:
    assert resolve_reference(None, required=True) == FrozenReference()
    assert resolve_reference(None, required=False) == AbsentReference()


def test_a_reference_without_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"divergence.beta above 0 or remove \[reference\]"):
        resolve_reference(EmaReference(), required=False)


def test_a_required_reference_that_is_absent_is_refused() -> None:
    with pytest.raises(ConfigError, match="write reference"):
        resolve_reference(AbsentReference(), required=True)
