"""A rise and a fall: the values of transformers at every step, and means over the updates of a step."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from transformers import get_scheduler

from groupwise.schedule import WarmUp

NAMES = {"cosine": "cosine", "linear": "linear", "none": "constant_with_warmup"}


def of_transformers(fall: str, num_warm_up: int, num_updates: int, num: int) -> list[float]:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = get_scheduler(NAMES[fall], optimiser, num_warmup_steps=num_warm_up, num_training_steps=num_updates)
    rates = []
    for _ in range(num):
        rates.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("fall", NAMES)
@pytest.mark.parametrize(("num_warm_up", "num_updates"), [(0, 7), (1, 7), (3, 17), (7, 7)])
def test_every_rate_is_that_of_transformers(
    fall: Literal["cosine", "linear", "none"], num_warm_up: int, num_updates: int
) -> None:
    schedule = WarmUp(peak=0.3, warm_up_updates=num_warm_up, num_updates=num_updates, fall=fall)
    rates = [schedule.at(step) for step in range(num_updates)]
    assert rates == pytest.approx(of_transformers(fall, num_warm_up, num_updates, num_updates), abs=1e-15)
    assert max(rates) <= schedule.extremes()[1]
    assert min(rates) >= schedule.extremes()[0]


def test_a_step_of_several_updates_has_their_mean() -> None:
    # Updates 0 to 5 have 0, 1, 2, 3, 1.5 and 0: (0 + 1 + 2) / 3 and (3 + 1.5 + 0) / 3.
    schedule = WarmUp(peak=3.0, warm_up_updates=3, num_updates=5, fall="linear", updates_per_step=3)
    assert [schedule.at(step) for step in range(4)] == pytest.approx([1.0, 1.5, 0.0, 0.0])


def test_it_ends_where_it_is_told_to_and_stays() -> None:
    schedule = WarmUp(peak=3.0, end=1.0, warm_up_updates=1, num_updates=3)
    assert [schedule.at(step) for step in (0, 1, 2, 3, 9)] == pytest.approx([0.0, 3.0, 2.0, 1.0, 1.0])
    assert schedule.extremes() == (0.0, 3.0)
    assert WarmUp(peak=3.0, end=1.0, warm_up_updates=0, num_updates=3).extremes() == (1.0, 3.0)
    assert WarmUp(peak=3.0, warm_up_updates=0, num_updates=3, fall="none").extremes() == (3.0, 3.0)
