"""The page of what the order costs says what its numbers say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import ordering  # noqa: E402

pytestmark = pytest.mark.slow

FIRST = ordering.compare(ordering.inputs(0.0, 0.0))
LATER = ordering.compare(ordering.inputs(0.1, 0.1))
CREDITS = ["gradient_adaptive", "temporal_decay"]


@pytest.mark.parametrize("method", ordering.METHODS)
def test_on_policy_ours_silences_nothing_and_never_pushes_the_wrong_way(method: str) -> None:
    for found in (FIRST, LATER):
        assert set(found[method][1].wrong_way.values()) == {0.0}
    assert set(FIRST[method][1].without_gradient.values()) == {0.0}


@pytest.mark.parametrize("method", CREDITS)
def test_a_credit_inside_the_clip_silences_bad_answers_on_policy(method: str) -> None:
    original = FIRST[method][0]
    assert original.without_gradient["bad"] > 0.5
    assert original.without_gradient["bad"] > original.without_gradient["good"] > 0


def test_the_decay_leaves_hardly_a_bad_token_and_weighs_ten_times_less() -> None:
    original, ours = FIRST["temporal_decay"]
    assert original.without_gradient["bad"] > 0.85
    assert ours.norm > 5 * original.norm


@pytest.mark.parametrize("method", ["ptrw", "aggressive"])
def test_a_differentiated_gate_pushes_the_wrong_way(method: str) -> None:
    assert min(LATER[method][0].wrong_way.values()) > 0.2


@pytest.mark.parametrize("method", ["ema", "amic"])
def test_the_gradient_through_the_ratio_is_the_same_in_both_programs(method: str) -> None:
    for found in (FIRST, LATER):
        original, ours = found[method]
        assert original.norm == pytest.approx(ours.norm, rel=1e-4)
        assert original.without_gradient == pytest.approx(ours.without_gradient, abs=1e-3)


def test_the_page_shows_every_innovation_and_combination() -> None:
    page = ordering.page()
    for method in ordering.METHODS:
        assert page.count(f"[`{method}`]") == 2
    assert page.count("<rect") == 2 * len(ordering.METHODS)
