"""Rewards and hooks of the faults in `author.toml`."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np


def boxed(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """Looks for an answer in a form that no text of this model has."""
    found = [re.search(r"\\boxed\{(.*?)\}", text) for text in completions]
    return [float(match is not None and match[1] == right) for match, right in zip(found, answer, strict=True)]


def words(completions: Sequence[str], **columns: Any) -> list[float]:
    """Pays for words, whatever they are."""
    return [float(len(text.split())) for text in completions]


def brief(completions: Sequence[str], **columns: Any) -> list[float]:
    """Pays for few words."""
    return [-float(len(text.split())) for text in completions]


def wrong(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """Pays for every answer but the right one: the comparison is turned round."""
    return [
        float(text.rpartition("answer")[2].strip() not in ("", right))
        for text, right in zip(completions, answer, strict=True)
    ]


def right(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """What was meant: the right answer."""
    return [
        float(text.rpartition("answer")[2].strip() == right) for text, right in zip(completions, answer, strict=True)
    ]


_CHANCE = random.Random(0)


def by_chance(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Pays by chance."""
    return [_CHANCE.random() for _ in completions]


def often_silent(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float | None]:
    """The right answer, of a service that answers six times in ten."""
    paid = right(completions, answer)
    return [value if _CHANCE.random() < 0.6 else None for value in paid]


def dark(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Pays for dark images."""
    return [1 - float(np.asarray(image).mean()) / 255 for image in completions]


def bytes_of_brightness(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Brightness from 0 to 255, beside rewards between 0 and 1."""
    return [float(np.asarray(image).mean()) for image in completions]


def of_the_label(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """Reads the data's label in place of the image, so that every member of a prompt earns the same."""
    return [float(number) / 9 for number in label]


def one_member_counts(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Returns a number for the batch: the mean of its members, the same for all."""
    return [float(np.mean([np.asarray(image).mean() for image in completions]))] * len(completions)


def sampler_keeps_first_weights() -> None:
    """The sampler goes on with the weights that the stage began with."""
    from groupwise.domain.language.policy import LocalPolicy

    sample, first = LocalPolicy.sample, {}

    def stale(self: Any, *arguments: Any, **settings: Any) -> Any:
        if "policy" not in first and self.module.training is not None:
            first["policy"] = copy.deepcopy(self.module.state_dict())
        live = copy.deepcopy(self.module.state_dict())
        self.module.load_state_dict(first["policy"])
        try:
            return sample(self, *arguments, **settings)
        finally:
            self.module.load_state_dict(live)

    LocalPolicy.sample = stale


def gradients_overflow() -> None:
    """Half of the optimiser's gradients hold an infinite number, as after an overflow."""
    import torch

    norm = torch.nn.utils.get_total_norm

    def broken(*arguments: Any, **settings: Any) -> Any:
        value = norm(*arguments, **settings)
        return value * float("inf") if _CHANCE.random() < 0.5 else value

    torch.nn.utils.get_total_norm = broken


def rewards_of_other_members() -> None:
    """Rewards come back in another order than members went, as from workers that finish when they like."""
    from groupwise_selection.domain import SelectionDomain

    _shuffled(SelectionDomain)


def restored_rewards_of_other_members() -> None:
    """The same, of restored images."""
    from groupwise_images.restoration.domain import RestorationDomain

    _shuffled(RestorationDomain)


def _shuffled(domain: Any) -> None:
    reward = domain.reward

    def shuffled(self: Any, samples: Any) -> Any:
        table = reward(self, samples)
        order = list(range(len(samples)))
        _CHANCE.shuffle(order)
        return replace(table, values={name: _ordered(values, order) for name, values in table.values.items()})

    domain.reward = shuffled


def _ordered(values: Any, order: Sequence[int]) -> Any:
    return values[order] if hasattr(values, "shape") else [values[place] for place in order]
