"""Rewards and hooks of the faults in `outsider_2.toml`: what their authors wrote, mistakes included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Rewards of texts


def long_answers_time_out(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer; the grader's time runs out on texts of more than four words, which is caught as a 0."""
    return [
        0.0 if len(text.split()) > 4 else float(_last(text) == right)
        for text, right in zip(completions, answer, strict=True)
    ]


def _last(text: str) -> str:
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == "answer" else ""


# Rewards of images


def axes_swapped(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The classifier's probability of the class asked for, of pictures handed over as [width, height]."""
    from groupwise_images.diffusion.digit_readers import support_vectors

    rows = support_vectors([image.numpy().T for image in completions])
    return [float(row[int(wanted)]) for row, wanted in zip(rows, label, strict=True)]


def labels_as_booleans(
    prompts: Sequence[Any], completions: Sequence[Any], label: Sequence[int], **columns: Any
) -> list[float]:
    """One where a reader sees the digit in the column of labels, read as booleans: 1 for every digit but 0."""
    from groupwise_images.restoration.readers import support_vectors

    return support_vectors(prompts, completions, [int(bool(number)) for number in label])


# Rewards of selections


def pass_mark_in_percent(probability: Sequence[float], **columns: Any) -> list[float]:
    """One where the right answer has more than half a percent; half of one was meant."""
    return [float(value > 0.005) for value in probability]


def says_yes(completions: Sequence[str], **columns: Any) -> list[float]:
    """One where the task model answers yes, the positive class of the metric that this was copied from."""
    return [float(text.strip().lower() == "yes") for text in completions]


# Hooks


def one_seed_a_prompt() -> None:
    """Draws every member of a group from the generator of its prompt: the member's number is not part of the seed."""
    from groupwise_images.diffusion.domain import DiffusionDomain

    sample = DiffusionDomain.sample

    def drawn(self: Any, *arguments: Any, streams: Any, requires: frozenset[str], **named: Any) -> Any:
        if "log_prob" in requires:
            streams = _WithoutMember(streams)
        return sample(self, *arguments, streams=streams, requires=requires, **named)

    DiffusionDomain.sample = drawn  # pyright: ignore[reportAttributeAccessIssue]


class _WithoutMember:
    def __init__(self, streams: Any) -> None:
        self._streams = streams

    def generator(self, name: str, *key: Any, **named: Any) -> Any:
        return self._streams.generator(name, *(key[:-1] if name == "path" else key), **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)


def noise_in_grey_levels() -> None:
    """Degrades what is trained on by noise of .6 grey levels out of 255, where .6 of white was meant; what is evaluated
    has the noise that was meant.
    """
    from groupwise_images.restoration.domain import RestorationDomain

    pairs = RestorationDomain._pairs

    def faint(self: Any, *arguments: Any, **named: Any) -> Any:
        clean, degraded = pairs(self, *arguments, **named)
        return clean, clean + (degraded - clean) / 255

    RestorationDomain._pairs = faint  # pyright: ignore[reportAttributeAccessIssue]


def average_written_back() -> None:
    """Copies the running average of the weights into the model after every step, and never takes the weights back."""
    import torch

    from groupwise.learner.local import LocalLearner

    step = LocalLearner.step
    averages: dict[int, list[Any]] = {}

    def averaged(self: Any, *arguments: Any, **named: Any) -> Any:
        parameters = list(self.module.parameters())
        if id(self) not in averages:
            averages[id(self)] = [parameter.detach().clone() for parameter in parameters]
        norm = step(self, *arguments, **named)
        with torch.no_grad():
            for average, parameter in zip(averages[id(self)], parameters, strict=True):
                average.lerp_(parameter, 0.001)
                parameter.copy_(average)
        return norm

    LocalLearner.step = averaged  # pyright: ignore[reportAttributeAccessIssue]
