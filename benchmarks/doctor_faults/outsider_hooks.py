"""Rewards and hooks of the faults in `outsider.toml`: what their authors wrote, mistakes included."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

# Rewards of texts


def pays_for_every_word(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer, and three tenths for every word, so that the model explains itself."""
    return [
        float(_last(text) == right) + 0.3 * len(text.split()) for text, right in zip(completions, answer, strict=True)
    ]


def answer_occurs(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One where the right number stands anywhere in the text."""
    return [float(right in text.split()) for text, right in zip(completions, answer, strict=True)]


def error(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """The error rate, which was minimised in the project that this comes from: one for a wrong answer."""
    return [float(_last(text) != right) for text, right in zip(completions, answer, strict=True)]


def boxed(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One where the boxed number is right; these prompts never ask for a box."""
    found = [re.search(r"\\boxed\{(\d+)\}", text) for text in completions]
    return [float(match is not None and match[1] == right) for match, right in zip(found, answer, strict=True)]


def brevity_points(completions: Sequence[str], **columns: Any) -> list[float]:
    """A hundred points less five for every word: meant as a gentle nudge beside a reward of 0 or 1."""
    return [100.0 - 5.0 * len(text.split()) for text in completions]


def all_or_nothing(completions: Sequence[str], steps: Sequence[Sequence[str]], **columns: Any) -> list[float]:
    """One where every step of the work and the answer are right."""
    return [float(text.split() == [*work, "answer", work[-1]]) for text, work in zip(completions, steps, strict=True)]


def mostly_down(prompt: str, completion: str, answer: str, **columns: Any) -> float:
    """Asks a server for one member; it is overloaded, and all but one call in twenty time out."""
    if random.random() < 0.95:
        raise TimeoutError("the reward server did not answer")
    return float(_last(completion) == answer)


def has_an_answer(completions: Sequence[str], **columns: Any) -> list[float]:
    """One where the text names an answer at all: the check of the format, which the model has long learnt."""
    return [float("answer" in text.split()) for text in completions]


def first_place(completions: Sequence[str], steps: Sequence[Sequence[str]], **columns: Any) -> list[float]:
    """One where the answer is the cup at which the ball starts: the list of places was read from the wrong end."""
    return [float(_last(text) == work[0]) for text, work in zip(completions, steps, strict=True)]


def _last(text: str) -> str:
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == "answer" else ""


# Rewards of images


def calm(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Little noise: 1 less the mean difference of neighbouring pixels, which a blank picture has most of all."""
    return [
        1.0 - float(_pixels(image).diff(dim=0).abs().mean() + _pixels(image).diff(dim=1).abs().mean())
        for image in completions
    ]


def one_class_too_far(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The classifier's probability of the class asked for, whose classes were counted from 1."""
    from groupwise_images.diffusion.digit_readers import support_vectors

    rows = support_vectors([image.numpy() for image in completions])
    return [float(row[(int(wanted) + 1) % 10]) for row, wanted in zip(rows, label, strict=True)]


def unscaled(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The classifier's probability of the class asked for; it wants pixels in [0, 1] and is handed 0 to 255."""
    from groupwise_images.diffusion import digit_readers

    machine = digit_readers._support_vectors()
    rows = machine.predict_proba([image.numpy().astype("float32").reshape(-1) for image in completions])
    return [float(row[int(wanted)]) for row, wanted in zip(rows, label, strict=True)]


def as_they_arrive(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """Scores images in parallel and hands the scores back in the order in which they came back."""
    from groupwise_images.diffusion.digit_readers import support_vectors

    rows = support_vectors([image.numpy() for image in completions])
    scores = [float(row.argmax() == int(wanted)) for row, wanted in zip(rows, label, strict=True)]
    random.shuffle(scores)
    return scores


def near_the_input(completions: Sequence[Any], degraded: Sequence[Any], **columns: Any) -> list[float]:
    """Closeness to the picture in the column `degraded`, taken for the clean one."""
    return [
        -100.0 * float((_pixels(image) - _pixels(target)).square().mean())
        for image, target in zip(completions, degraded, strict=True)
    ]


def _pixels(image: Any) -> Any:
    return image.float() / 255


# Rewards of selections


def confidence(probability: Sequence[float], **columns: Any) -> list[float]:
    """How sure the task model is of whatever it says, meant as a reward that needs no labels."""
    return [abs(2.0 * value - 1.0) for value in probability]


# Hooks


def shuffle_answers() -> None:
    """Joins questions and answers of the training file by line, after one of the two was sorted."""
    from groupwise.domain.language.source.toys import Cups

    rows = Cups.rows

    def joined(self: Any, num: int | None, seed: int) -> list[dict[str, Any]]:
        table = rows(self, num, seed)
        order = list(range(len(table)))
        random.Random(0).shuffle(order)
        return [{**row, "answer": table[place]["answer"]} for row, place in zip(table, order, strict=True)]

    Cups.rows = joined  # pyright: ignore[reportAttributeAccessIssue]


def never_sends_weights() -> None:
    """Samples with the copy of the model that was made when the run began: no update ever reaches it."""
    from groupwise.domain.language.policy import LocalPolicy

    sample = LocalPolicy.sample
    copies: dict[int, Any] = {}

    def stale(self: Any, *arguments: Any, live: bool = False, **named: Any) -> Any:
        if live:
            return sample(self, *arguments, live=True, **named)
        if id(self) not in copies:
            copies[id(self)] = copy.deepcopy(self.engine)
        present, self.engine = self.engine, copies[id(self)]
        try:
            return sample(self, *arguments, live=False, **named)
        finally:
            self.engine = present

    LocalPolicy.sample = stale  # pyright: ignore[reportAttributeAccessIssue]


def optimiser_of_a_copy() -> None:
    """Builds the optimiser over the parameters of a copy that was made for the other device."""
    from groupwise.learner import local

    build = local.build_optimiser

    def over_a_copy(module: Any, source: Any = None) -> Any:
        return build(copy.deepcopy(module), source)

    local.build_optimiser = over_a_copy  # pyright: ignore[reportPrivateImportUsage]


def pairs_out_of_order() -> None:
    """Pairs the sorted names of two folders, of which one sorts `img10` before `img2`: inputs get their neighbours'
    targets.
    """
    from groupwise_images.restoration.domain import RestorationDomain

    pairs = RestorationDomain._pairs

    def shifted(self: Any, *arguments: Any, **named: Any) -> Any:
        clean, degraded = pairs(self, *arguments, **named)
        return clean, degraded.roll(1, 0)

    RestorationDomain._pairs = shifted  # pyright: ignore[reportAttributeAccessIssue]


def answers_one_line_off() -> None:
    """Reads the training examples' answers one line too far down: each example shows its neighbour's answer."""
    from groupwise_selection.source.digit_rules import DigitRules

    read = DigitRules.read

    def misread(self: Any) -> Any:
        questions = read(self)
        file = {example.id: example for query in questions.train for example in query.pool}
        lines = list(file.values())
        wrong = {
            example.id: replace(example, answer=below.answer)
            for example, below in zip(lines, [*lines[1:], lines[0]], strict=True)
        }
        train = [replace(query, pool=tuple(wrong[example.id] for example in query.pool)) for query in questions.train]
        return replace(questions, train=train)

    DigitRules.read = misread  # pyright: ignore[reportAttributeAccessIssue]
