"""VQA accuracy: the agreement of an answer with those of several annotators."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

from groupwise.domain.selection.reward.vqa_normalise import normalise

AccuracyForm = Literal["official", "short"]
"""`official` leaves every annotator out once; `short` is `min(k / 3, 1)`."""

Comparison = Literal["exact", "vqa"]
"""`exact` compares answers as they are written; `vqa` as the VQA challenge does, where `The 2 dogs.` is `two dogs`."""


def comparable(answer: str, comparison: Comparison = "vqa") -> str:
    """Returns the text that is equal for answers that count as the same.

    `exact` joins only what looks the same: white space, and the two ways to write an accent. `vqa` is `normalise`,
    except for answers of which it leaves nothing (`<`, `a`), which are compared as they are written.

    Example:
        >>> [comparable(text) for text in ("The Two dogs.", "<", "-1")], comparable(" -1  m", "exact")
        (['2 dogs', '<', '1'], '-1 m')
    """
    written = unicodedata.normalize("NFC", " ".join(answer.split()))
    return written if comparison == "exact" else normalise(answer) or written.lower()


def vqa_accuracy(
    answer: str, answers: Sequence[str], form: AccuracyForm = "official", comparison: Comparison = "vqa"
) -> float:
    """Computes the share of a full score that an answer earns from the annotators' answers, 0 to 1.

    `official`: the mean over annotators of `min(matches among the others / 3, 1)`; `short`: `min(matches / 3, 1)`. The
    two differ for one to three matches (of ten: .3, .6, .9 against .333, .667, 1). Answers are compared by
    `comparable`, also where all annotators agree; the published code then compares with their answers as they are
    written. Where fewer people were asked than could give three matches, the divisor is how many could agree; a
    single one is right or wrong.

    Args:
        answer: the answer to judge.
        answers: answers of the annotators, one each.
        form: the formula, see above.
        comparison: which answers count as the same.

    Returns:
        the accuracy.

    Raises:
        ValueError: `answers` is empty.

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
    given = comparable(answer, comparison)
    matches = sum(comparable(annotator_answer, comparison) == given for annotator_answer in answers)
    if form == "short" or len(answers) == 1:
        return min(matches / min(3, len(answers)), 1.0)
    enough, num_others = min(3, len(answers) - 1), len(answers) - matches
    # Leaving out one who agrees leaves one match less; a fraction of integers, so that ten equal answers give 1
    # exactly.
    return (matches * min(matches - 1, enough) + num_others * min(matches, enough)) / (enough * len(answers))


def expected_accuracy(
    probabilities: Sequence[float], candidates: Sequence[str], answers: Sequence[str], form: AccuracyForm = "official"
) -> float:
    """Computes `sum_a P(a) accuracy(a)`, the mean accuracy of answers drawn from the model.

    Args:
        probabilities: probability of each candidate; the rest of the probability belongs to answers that no annotator
            gave, and earns nothing.
        candidates: answers, one a probability.
        answers: answers of the annotators, one each.
        form: formula of the accuracy.

    Raises:
        ValueError: the numbers of probabilities and candidates differ.

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


def relevance(answer: str, answers: Sequence[str], comparison: Comparison = "vqa") -> float:
    """Computes the best F1 of an answer's words with those of any annotator's answer, 0 to 1; 0 without words on either
    side.

    Args:
        answer: the answer to judge.
        answers: answers of the annotators, one each.
        comparison: which words count as the same.

    Example:
        >>> relevance("a red bus", ["bus", "blue car"])
        0.6666666666666666
    """
    words = comparable(answer, comparison).split()
    return max(
        (
            _overlap(words, comparable(annotator_answer, comparison).split())
            for annotator_answer in dict.fromkeys(answers)
        ),
        default=0.0,
    )


def _overlap(words: Sequence[str], annotator_words: Sequence[str]) -> float:
    shared = sum(min(words.count(word), annotator_words.count(word)) for word in set(words))
    return 2 * shared / (len(words) + len(annotator_words)) if shared else 0.0
