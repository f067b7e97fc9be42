"""VQA accuracy: how many of the people who were asked gave this answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from groupwise.domain.selection.reward.vqa_normalise import normalise

AccuracyForm = Literal["official", "short"]
"""`official` leaves every annotator out once; `short` is `min(k / 3, 1)`."""


def vqa_accuracy(answer: str, answers: Sequence[str], form: AccuracyForm = "official") -> float:
    """The share of a full score that an answer earns from those of the annotators, 0 to 1.

    `official`: the mean over annotators of `min(matches among the others / 3, 1)`; `short`: `min(matches / 3, 1)`. The
    two differ for one to three matches (of ten: .3, .6, .9 against .333, .667, 1). Answers are compared as `normalise`
    gives them. Where fewer people were asked than could give three matches, the divisor is how many could agree; a
    single one is right or wrong.

    Args:
        answer: what was said.
        answers: one a person.
        form: which of the two.

    Returns:
        the accuracy.

    Raises:
        ValueError: nobody was asked.

    Example:
        >>> ten = ["red"] * 2 + ["blue"] * 8
        >>> (
        ...     round(vqa_accuracy("The red.", ten), 12),
        ...     round(vqa_accuracy("red", ten, "short"), 3),
        ...     vqa_accuracy("blue", ten),
        ...     vqa_accuracy("green", ten),
        ... )
        (0.6, 0.667, 1.0, 0.0)

    Source: Antol et al. 2015, arXiv 1505.00468, section 5, and its published evaluation code (the leave-one-out mean).
    """
    if not answers:
        raise ValueError("answers is empty, and VQA accuracy compares with what people said; give one answer a person")
    said = normalise(answer)
    matches = sum(normalise(each) == said for each in answers)
    if form == "short" or len(answers) == 1:
        return min(matches / min(3, len(answers)), 1.0)
    enough, others = min(3, len(answers) - 1), len(answers) - matches
    # Leaving out one who agrees leaves one match less; a fraction of integers, so that ten equal answers give 1
    # exactly.
    return (matches * min(matches - 1, enough) + others * min(matches, enough)) / (enough * len(answers))


def expected_accuracy(
    probabilities: Sequence[float], candidates: Sequence[str], answers: Sequence[str], form: AccuracyForm = "official"
) -> float:
    """`sum_a P(a) accuracy(a)`: what an answer drawn from the model would earn on average.

    Args:
        probabilities: of each candidate; they may leave some of the probability to answers nobody gave, which earn
            nothing.
        candidates: answers, as many.
        answers: of the annotators.
        form: of the accuracy.

    Raises:
        ValueError: another number of probabilities than candidates.

    Example:
        >>> round(expected_accuracy([0.5, 0.25], ["blue", "red"], ["red"] * 2 + ["blue"] * 8), 12)
        0.65
    """
    if len(probabilities) != len(candidates):
        raise ValueError(f"{len(probabilities)} probabilities for {len(candidates)} candidates; give one each")
    return sum(
        probability * vqa_accuracy(candidate, answers, form)
        for probability, candidate in zip(probabilities, candidates, strict=True)
    )


def relevance(answer: str, answers: Sequence[str]) -> float:
    """How near an answer is in words: the best F1 of its words with those of any annotator, 0 to 1. Without words on
    either side it is 0.

    Args:
        answer: what was said.
        answers: one a person.

    Example:
        >>> relevance("a red bus", ["bus", "blue car"])
        0.6666666666666666
    """
    said = normalise(answer).split()
    return max((_overlap(said, normalise(each).split()) for each in dict.fromkeys(answers)), default=0.0)


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> float:
    shared = sum(min(said.count(word), wanted.count(word)) for word in set(said))
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0
