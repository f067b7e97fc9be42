"""Noise of the sampler, apart from the luck of few held-out prompts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


def said(settings: dict[str, Any], temperature: float | None = None, spread: float = 0.36) -> list[str]:
    """The alarms of a policy that earns .15 while it is sampled and .55 in evaluations, and does not learn."""
    rows = course(num_steps=30, reward=(0.15, 0.15), reward_std=(0.3, 0.3), rewards_std=(spread, spread))
    if temperature is not None:
        rows = [row | {"settings/temperature": temperature} for row in rows]
    before = {"step": 0, "stage": "grpo", "eval/restored/reward": 0.55}
    rows[20]["eval/restored/reward"] = 0.56
    return [finding.rule for finding in diagnose([before, *rows], settings) if finding.severity != "note"]


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        pytest.param({}, ["exploration_too_strong"], id="unknown"),
        pytest.param({"evaluation": {"num_images": None}}, ["exploration_too_strong"], id="all"),
        pytest.param({"evaluation": {"num_images": 50}}, ["exploration_too_strong"], id="fifty"),
        pytest.param({"evaluation": {"num_images": 8}}, [], id="eight"),
        pytest.param({"data": {"num_held_out": 4}, "evaluation": {"num_prompts": 50}}, [], id="four held out"),
    ],
)
def test_few_held_out_prompts_may_be_easy_by_luck(settings: dict[str, Any], rules: list[str]) -> None:
    assert said({"domain": settings}) == rules


def test_a_gap_within_the_errors_of_the_members_is_luck() -> None:
    assert said({"domain": {"evaluation": {"num_images": 12}}}, spread=0.6) == []


@pytest.mark.parametrize(("temperature", "rules"), [(1.0, []), (1.5, ["exploration_too_strong"])])
def test_texts_at_temperature_one_are_the_policys_own(temperature: float, rules: list[str]) -> None:
    assert said({}, temperature) == rules


@pytest.mark.parametrize(("rise", "rules"), [(0.02, ["exploration_too_strong"]), (0.1, [])])
def test_a_rise_that_leaves_the_gap_as_wide_is_noise(rise: float, rules: list[str]) -> None:
    rows = course(num_steps=40, reward_std=(0.3, 0.3))
    for place, row in enumerate(rows):
        row["reward"] = 0.15 + rise * (place >= 20)
    before = {"step": 0, "stage": "grpo", "eval/restored/reward": 0.55}
    rows[-1]["eval/restored/reward"] = 0.56
    assert [found.rule for found in diagnose([before, *rows]) if found.severity != "note" and found.holds] == rules
