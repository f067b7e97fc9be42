"""Prompts that earn one value alone."""

from __future__ import annotations

from groupwise.training.step.state import PromptValues


def test_a_prompt_counts_from_its_third_draw_and_loses_its_value_for_good() -> None:
    values = PromptValues()
    values.add([(0, [1.0, 1.0]), (1, [0.5, 0.5])])
    values.add([(0, [1.0]), (1, [0.5])])
    assert values.metrics() == {}
    values.add([(0, [1.0])])
    assert values.metrics() == {"prompts/revisited": 1.0, "prompts/one_value": 1.0}
    values.add([(1, [0.5, 0.25])])
    assert values.metrics() == {"prompts/revisited": 2.0, "prompts/one_value": 0.5}
    values.add([(1, [0.5]), (0, [0.0])])
    assert values.metrics() == {"prompts/revisited": 2.0, "prompts/one_value": 0.0}


def test_members_without_a_reward_are_no_draw_and_rounding_is_no_other_value() -> None:
    values = PromptValues()
    for rewards in ([0.1 + 0.2], [], [0.3], [0.3]):
        values.add([(4, rewards)])
    assert values.metrics() == {"prompts/revisited": 1.0, "prompts/one_value": 1.0}


def test_a_record_goes_on_where_it_was() -> None:
    values = PromptValues()
    for _ in range(2):
        values.add([(3, [0.0]), (9, [1.0, 0.0])])
    restored = PromptValues.from_record(values.record())
    for part in (values, restored):
        part.add([(3, [0.0]), (9, [1.0])])
    assert restored.metrics() == values.metrics() == {"prompts/revisited": 2.0, "prompts/one_value": 0.5}
