"""The record of what was acted: every field goes with its member, filler counts nothing, masked places are harmless."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from groupwise.objective.batch import OPTIONAL, Acted
from groupwise.records import Rollouts

MASK = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])


def acted() -> Acted:
    """Three members whose every field holds other numbers, NaN where nothing counts."""
    numbers = {
        name: torch.where(MASK, -torch.arange(1.0, 10.0).view(3, 3) / (place + 1), torch.nan)
        for place, name in enumerate(sorted({"old_log_prob", *OPTIONAL}))
    }
    old = numbers.pop("old_log_prob")
    return Acted(MASK, old, **numbers, member=torch.tensor([7, 5, 3]), density=True)


def tensors(record: Acted) -> dict[str, Tensor]:
    return {f.name: value for f in fields(record) if isinstance(value := getattr(record, f.name), Tensor)}


def test_the_record_of_the_test_holds_every_field() -> None:
    assert {f.name for f in fields(Acted)} == {*tensors(acted()), "density", "packed"}
    assert {"behaviour_log_prob", "reference_log_prob", "step_size"} == OPTIONAL


def test_every_field_goes_with_its_member_and_filler_counts_nothing() -> None:
    every_field, rows = acted(), torch.tensor([1, -1, 0])
    selected = every_field.select(rows)
    assert len(selected) == 3
    for name, value in tensors(every_field).items():
        chosen = getattr(selected, name)
        torch.testing.assert_close(chosen[[0, 2]], value[[1, 0]], equal_nan=True)
        # Filler repeats member 0 but for its mask.
        if name != "mask":
            torch.testing.assert_close(chosen[1], value[0], equal_nan=True)
    assert not selected.mask[1].any()
    assert (selected.density, selected.packed) == (True, False)


def test_a_slice_cuts_every_number_of_a_decision() -> None:
    every_field = acted()
    selected = every_field.select(torch.tensor([0, 1]), slice(1, 3))
    for name, value in tensors(every_field).items():
        expected = value[:2] if name == "member" else value[:2, 1:3]
        torch.testing.assert_close(getattr(selected, name), expected, equal_nan=True)


def test_clean_numbers_are_finite_in_the_dtype_of_the_loss() -> None:
    every_field = acted()
    clean = every_field.clean(torch.float64)
    for name in ("old_log_prob", *OPTIONAL):
        value = getattr(clean, name)
        assert value.dtype == torch.float64
        assert not value[~MASK].any()
        torch.testing.assert_close(value[MASK], getattr(every_field, name)[MASK].double())
    assert torch.equal(clean.mask, MASK)
    assert clean.member is every_field.member


@pytest.mark.parametrize("ids", [None, torch.tensor([40, 50])])
def test_what_rollouts_recorded_is_taken_whole(ids: Tensor | None) -> None:
    mask, old = torch.ones(2, 2, dtype=torch.bool), torch.full((2, 2), -1.0)
    beside = {name: old.abs() * (place + 2) for place, name in enumerate(sorted(OPTIONAL))}
    rollouts = Rollouts(torch.tensor([0, 0]), mask, old, {"right": [1.0, 0.0]}, **beside, member=ids, density=True)
    record = Acted.of(rollouts)
    for name in ("mask", "old_log_prob", *OPTIONAL):
        assert torch.equal(getattr(record, name), getattr(rollouts, name)), name
    assert record.member is not None
    assert record.member.tolist() == ([0, 1] if ids is None else [40, 50])
    assert record.density
    assert record.packed
    holes = replace(rollouts, mask=torch.tensor([[False, True], [True, True]]))
    assert not Acted.of(holes).packed
