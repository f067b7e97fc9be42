"""`sample`: what a trained model writes."""

from __future__ import annotations

from pathlib import Path


def test_the_same_question_and_seed_give_the_same_answers(groupwise, finished: Path):
    first = groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5)
    assert first.status == 0, first
    assert first.out.count("sort 3 1 2 ?\n") == 4
    assert groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5).out == first.out
    assert groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5, "--seed", 1).out != first.out


def test_without_a_question_training_prompts_are_answered(groupwise, finished: Path):
    ended = groupwise("sample", finished)
    assert ended.status == 0, ended
    assert ended.out.count("sort ") >= 3
