"""A piece of a user's own that cannot work is named before a folder is made; one that real numbers may suit is not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.training.toy import job, recipe

from groupwise.config import ConfigError, validate
from groupwise.config.import_path import ImportPath
from groupwise.objective import Objective
from groupwise.reference import CallableReference
from groupwise.training.job import Recipe
from groupwise.training.run.launch import train
from groupwise.training.run.preflight import try_pieces

MODULE = """
from typing import ClassVar
import torch
from groupwise.objective import slot
from groupwise.objective.decisions import Surrogate
from groupwise.objective.noise import NoisedCopies
from groupwise.reference import ReferenceRule
from groupwise.schedule import Fixed

def flagged(value, alive):  # past the checks of types that only tests have
    surrogate = Surrogate(value, torch.ones_like(value).bool())
    object.__setattr__(surrogate, "alive", alive)
    return surrogate
class NoRunning(slot.AdvantageSlot):
    def __call__(self, rewards, running): return rewards.value, None
class NoAttribute(slot.AdvantageSlot):
    def __call__(self, rewards, running): return rewards.nowhere, running

class NoFlags(slot.TrustSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return flagged(log_ratio, None)

class NarrowFlags(slot.TrustSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return flagged(log_ratio, torch.ones(3).bool())
class MemberRatio(slot.RatioSlot):
    scope: ClassVar[str] = "member"
    def __call__(self, log_ratio, decisions): return log_ratio.mean(1)
class Text(Fixed):
    def at(self, step, state=None): return "x"
    def extremes(self): return 0.0, 1.0
class Unknown(Fixed):
    def at(self, step, state=None): return undefined
    def extremes(self): return 0.0, 1.0
class Yes(ReferenceRule):
    def follow(self, step, score, reference_score): return "yes"
class Absent(ReferenceRule):
    def follow(self, step, score, reference_score): return undefined


class NoLogProb(NoisedCopies):
    def __call__(self, deviation): return {"error": deviation.live.square().mean(1)}



class NegativeLeft(NoisedCopies):
    reads: ClassVar[frozenset[str]] = frozenset({"positive_error", "negative_error"})
    def __call__(self, deviation):
        return {"log_prob": -deviation.live.square().mean(1), "positive_error": deviation.live.square().mean(1)}
class NoSurrogate(NoisedCopies):
    has_surrogate: ClassVar[bool] = True
    def __call__(self, deviation): return {"log_prob": -deviation.live.square().mean(1)}
    def surrogate(self, decisions): return decisions.nowhere

class Sound(NoisedCopies):
    def __call__(self, deviation): return {"log_prob": -deviation.live.square().mean(1)}

class NamedReward(slot.AdvantageSlot):
    def __call__(self, rewards, running): return rewards.parts["return"].value, running
class SevenWide(slot.AggregationSlot):
    def __call__(self, counts): return torch.ones(len(counts.mask), 7)
class SevenSteps(slot.RatioSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return log_ratio * torch.ones(7)
class Particular(slot.AdmissionSlot):
    def __call__(self, rewards): raise ValueError("these rewards are none of mine")
class NonsenseRead(slot.AdmissionSlot):
    reads: ClassVar[frozenset[str]] = frozenset({"nonsense"})
    def __call__(self, rewards): return ~rewards.group_flat.all(1)
class TextRead(slot.AdmissionSlot):
    uses: ClassVar = "entropy"
    def __call__(self, rewards): return ~rewards.group_flat.all(1)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pieces.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pieces", raising=False)


def of_slot(slot: str, piece: str) -> Recipe:
    return recipe(method="grpo", objective={f"{slot}.kind": "callable", f"{slot}.path": f"pieces:{piece}"})


def with_schedule(piece: str) -> Recipe:
    return recipe(objective={"entropy.kind": "callable", "entropy.path": f"pieces:{piece}"})


SLOTS = [
    ("advantage", "NoRunning", "its running statistics are None; return those that it was given"),
    ("advantage", "NoAttribute", "__call__ raised AttributeError: .* has no attribute 'nowhere' .*pieces.py:"),
    ("trust", "NoFlags", r"alive of its Surrogate is None; give bool \[B, T\]"),
    ("trust", "NarrowFlags", r"alive of its Surrogate: it returned a tensor of shape \[3\]"),
    ("ratio", "MemberRatio", "it returned a tensor of shape"),
]


@pytest.mark.parametrize(("slot", "piece", "message"), SLOTS, ids=[piece for _, piece, _ in SLOTS])
def test_a_slot_that_cannot_work_is_named_before_there_is_a_folder(
    slot: str, piece: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^path = 'pieces:{piece}': {message}"):
        train(job(of_slot(slot, piece)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


MATCHINGS = [
    ("NoLogProb", "it returned no 'log_prob', only 'error'; return 'log_prob' as well"),
    ("NegativeLeft", "it returned no 'negative_error', only 'log_prob', 'positive_error'; return 'negative_error' as"),
    ("NoSurrogate", "surrogate raised AttributeError: .* has no attribute 'nowhere' .*pieces.py:"),
]


@pytest.mark.parametrize(("piece", "message"), MATCHINGS, ids=[piece for piece, _ in MATCHINGS])
def test_a_matching_that_cannot_work_is_named(piece: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^path = 'pieces:{piece}': {message}"):
        try_pieces(job(of_slot("matching", piece)))


@pytest.mark.parametrize(
    ("piece", "message"),
    [("Text", "the value at step 0 is 'x'"), ("Unknown", "at raised NameError: name 'undefined'")],
)
def test_a_schedule_that_cannot_work_is_named(piece: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        try_pieces(job(with_schedule(piece)))


@pytest.mark.parametrize(
    ("piece", "message"), [("Yes", "follow.. returned 'yes' at step 1"), ("Absent", "follow raised NameError")]
)
def test_a_reference_that_cannot_work_is_named(piece: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        try_pieces(job(replace(recipe(), reference=CallableReference(path=ImportPath(f"pieces:{piece}")))))


@pytest.mark.parametrize(
    ("slot", "piece"),
    [
        *(("advantage", "NamedReward"), ("aggregation", "SevenWide"), ("ratio", "SevenSteps")),
        ("admission", "Particular"),
    ],
)
def test_what_real_members_may_suit_is_left_to_them(slot: str, piece: str) -> None:
    try_pieces(job(of_slot(slot, piece)))


@pytest.mark.parametrize(("piece", "said"), [("NonsenseRead", "reads = 'nonsense'"), ("TextRead", "uses = 'entropy'")])
def test_a_field_that_nobody_has_is_refused(piece: str, said: str) -> None:
    keys: dict[str, Any] = {"admission": {"kind": "callable", "path": f"pieces:{piece}"}}
    with pytest.raises(ConfigError, match=rf"admission: its class says {said}, and it must be a frozenset of fields"):
        validate(Objective, keys)
