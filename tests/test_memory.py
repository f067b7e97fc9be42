from __future__ import annotations

import mmap

import pytest
import torch

from groupwise.memory import available_bytes, peak_bytes

CPU = torch.device("cpu")
FLOAT = 4


def test_the_peak_counts_births_and_deaths_and_no_view_twice() -> None:
    def run() -> None:
        one = torch.zeros(1000)
        same = one.view(10, 100)
        same += 1  # in place: nothing new
        two = one.clone()
        del one, same
        three = two * 2
        del two, three
        torch.zeros(1500)

    assert peak_bytes(run, CPU) == 2000 * FLOAT


def test_a_backward_pass_holds_what_it_saved() -> None:
    layers = torch.nn.Sequential(*[torch.nn.Linear(50, 50, bias=False) for _ in range(4)])

    def run(members: int) -> int:
        return peak_bytes(lambda: layers(torch.zeros(members, 50)).sum().backward(), CPU)

    run(1)
    # The input and four outputs of 50 numbers a member; a gradient and the one before it come while outputs still live.
    per_member = (run(300) - run(100)) / 200 / 50 / FLOAT
    assert 5 <= per_member <= 7


def test_available_bytes_are_the_limit_minus_the_memory_in_use() -> None:
    limit = 64.0
    before = available_bytes(CPU, limit)
    assert 0 < before < limit * 2**30
    # Pages of its own: a tensor may lie where another one was freed, and then the process holds no more than before.
    with mmap.mmap(-1, 64 * 2**20) as mapping:
        mapping.write(b"1" * len(mapping))
        assert before - available_bytes(CPU, limit) == pytest.approx(len(mapping), rel=0.2)
