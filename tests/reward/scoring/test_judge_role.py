"""The role of a judge."""

from __future__ import annotations

from groupwise.reward import Length, as_judge
from groupwise.reward.scoring.score import Judged


def test_a_configured_reward_stays_one_and_reads_back() -> None:
    reward = as_judge(Length(target=3))
    assert isinstance(reward, Length)
    assert reward == Length.model_validate_json(reward.model_dump_json())
    assert reward.role == "judge"


def test_a_function_keeps_its_needs_and_limits() -> None:
    def reward(completions: list[str], answer: list[str]) -> list[float]:
        return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]

    reward.timeout_seconds = 3.0  # type: ignore[attr-defined]
    judge = as_judge(reward)
    assert isinstance(judge, Judged)
    assert (judge.needs, judge.timeout_seconds, judge.weight) == (("answer",), 3.0, 0.0)
    assert judge(prompts=["?"], completions=["a"], answer=["a"], level=[1]) == [1.0]
