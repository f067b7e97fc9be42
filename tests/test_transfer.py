"""Many tensors cross in one transfer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tests.device.emulated import CUDA, emulated_cuda
from tests.device.waits import counted_waits

from groupwise.transfer import moved


@dataclass(frozen=True)
class Record:
    wide: torch.Tensor
    inside: dict[str, object]
    number: int = 3


def record() -> Record:
    # Odd numbers of bytes, so that a tensor that began where the one before ends would lie between two words.
    half = torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16)
    inside = {"flags": torch.tensor([True, False, True]), "half": half, "none": torch.zeros(0, 4), "text": "as it is"}
    return Record(torch.arange(6).view(2, 3).t(), {**inside, "scalar": torch.tensor(2.5, dtype=torch.float64)})


def test_a_record_is_the_same_on_the_other_side_after_one_transfer_each_way() -> None:
    given = record()
    with emulated_cuda(), counted_waits() as waits:
        there = moved(given, CUDA)
        back = moved(there)
        assert there.wide.device == CUDA
        assert there.inside["half"].device == CUDA
        assert (waits.sent.total(), waits.lines.total()) == (1, 1)
    assert torch.equal(back.wide, given.wide)
    assert back.number == 3
    assert back.inside["text"] == "as it is"
    for name in ("flags", "half", "none", "scalar"):
        left, right = back.inside[name], given.inside[name]
        assert isinstance(left, torch.Tensor)
        assert isinstance(right, torch.Tensor)
        assert left.dtype == right.dtype
        assert torch.equal(left, right)


def test_what_lies_there_is_not_touched() -> None:
    given = record()
    assert moved(given) is given
