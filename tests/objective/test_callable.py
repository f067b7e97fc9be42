"""`callable`: a class of one's own in any slot, what it states of itself, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
import torch
from pydantic import Field
from tests import laws
from tests.objective.small import gradient, member_ratios
from torch import Tensor

from groupwise.config import ConfigError, ImportPath, import_paths, restrict_code
from groupwise.objective import Objective
from groupwise.objective.advantage import Centred
from groupwise.objective.batch import Grouped, Running
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import AdvantageSlot, CreditSlot, TrustSlot
from groupwise.records import Rollouts

HERE = "tests.objective.test_callable"


class Line(TrustSlot):
    """`S = slope rho A`."""

    scope: ClassVar[str] = "member"
    reads: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    discrete_only: ClassVar[str | None] = "write another trust.kind"
    slope: float = Field(default=2.0, gt=0)

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(self.slope * log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class Silent(TrustSlot):
    """States no scope."""

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        raise AssertionError


class Loud(Silent):
    """States a scope that there is not."""

    scope: ClassVar[str] = "token"


class Mute(TrustSlot):
    """Cannot be called."""

    scope: ClassVar[str] = "decision"


class Stranger:
    """Is no slot."""


class Signed(AdvantageSlot):
    """`A = sign(R - mean)`, against company that it cannot stand."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        return rewards.compared((rewards.value - rewards.mean).sign()), running

    def refuses(self, objective: Objective) -> Iterator[str]:
        if objective.aggregation.kind == "prompt_mean":
            yield "signs do not go with prompt means; write aggregation.kind = 'token_mean'"


class Halved(CreditSlot):
    """`c = 1/2` everywhere."""

    normalised: ClassVar[bool] = False

    def __call__(self, decisions: Decisions) -> Tensor:
        return 0.5 * decisions.mask.to(decisions.log_prob.dtype)


def table(slot: str, kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    place = {"path": f"{kind.__module__}:{kind.__name__}", "settings": dict(settings)}
    return {"callable": place} if slot == "credit" else {"kind": "callable"} | place


def shipped() -> list[tuple[str, type, dict[str, Any]]]:
    return [
        (slot, kind, laws.BUSY.get(laws.name_of(kind), {})) for slot in laws.SLOTS for kind in laws.slot_kinds(slot)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("slot", "kind", "settings"), shipped(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_shipped_class_by_its_path_is_that_kind(slot: str, kind: type, settings: dict[str, Any]) -> None:
    if laws.name_of(kind) == "none" and slot == "divergence":
        pytest.skip("no penalty has no coefficient")
    name = laws.name_of(kind)
    world = laws.world(3)
    by_kind = laws.build(**{slot: {name: settings} if slot == "credit" else {"kind": name} | settings})
    by_path = laws.build(**{slot: table(slot, kind, settings)})
    assert by_kind is not None
    assert by_path is not None
    assert (by_path.scope, by_path.requires, by_path.requires_rollouts) == (
        by_kind.scope,
        by_kind.requires,
        by_kind.requires_rollouts,
    )
    assert (by_path.discrete_only is None) == (by_kind.discrete_only is None)
    laws.same_outcome(laws.outcome(by_path, world), laws.outcome(by_kind, world), name)
    assert Objective.model_validate_json(by_path.model_dump_json()) == by_path


def preset(path: str, settings: Mapping[str, Any] | None = None, slot: str = "trust") -> Objective:
    return Objective.preset(
        "bnpo",
        **{f"{slot}.kind": "callable", f"{slot}.path": path}
        | ({f"{slot}.settings": settings} if settings is not None else {}),
    )


def test_a_class_of_ones_own_is_configured_and_asked_what_it_reads() -> None:
    objective = preset(f"{HERE}:Line", {"slope": 3.0})
    decisions = member_ratios([2.0])
    assert gradient(objective.trust(decisions.log_ratio, decisions).value, decisions) == [[pytest.approx(6.0)]]
    assert objective.scope == "member"
    assert objective.requires_rollouts == {"behaviour_log_prob"}
    assert objective.discrete_only is not None
    state, old = objective.init(), torch.full((2, 1), -1.0)
    with pytest.raises(ValueError, match="behaviour_log_prob is missing"):
        objective.prepare(
            Rollouts(torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), old, {"r": [1.0, 0.0]}), state
        )


def test_a_link_of_ones_own_says_whether_it_is_normalised() -> None:
    objective = Objective.preset("bnpo", **{"credit.callable.path": f"{HERE}:Halved"})
    decisions = member_ratios([1.0, 1.0])
    assert objective.scope == "member"
    assert objective.credit(decisions).eq(0.5).all()
    chain = Objective.preset("bnpo", **{"credit.callable.path": f"{HERE}:Halved", "credit.log_decay": {}})
    without_own_link = Objective.preset("bnpo", **{"credit.log_decay": {}})
    assert chain.credit(decisions).equal(0.5 * without_own_link.credit(decisions)), "the chain is left as it is"


def test_a_class_of_ones_own_refuses_its_company() -> None:
    with pytest.raises(ConfigError, match="signs do not go with prompt means"):
        Objective.preset(
            "bnpo",
            **{
                "advantage.kind": "callable",
                "advantage.path": f"{HERE}:Signed",
                "aggregation.kind": "prompt_mean",
            },
        )


def test_running_statistics_survive_a_stage_of_the_same_class_only() -> None:
    centred = {"advantage.kind": "callable", "advantage.path": "groupwise.objective.advantage:Centred"}
    centred_objective, signed = Objective.preset("bnpo", **centred), preset(f"{HERE}:Signed", slot="advantage")
    state = centred_objective.init().model_copy(update={"running": Running(weight=1.0)})
    assert centred_objective.adopt(state, centred_objective).running == state.running
    assert signed.adopt(state, centred_objective).running == Running()
    assert isinstance(centred_objective.advantage.piece, Centred)  # type: ignore[union-attr]


@pytest.mark.parametrize("slot", laws.SLOTS)
def test_code_that_may_not_run_is_listed_and_not_imported(slot: str) -> None:
    place = {"path": "not_a_module:Piece", "settings": {"a": 1}}
    written = {slot: {"callable": place} if slot == "credit" else {"kind": "callable"} | place}
    with restrict_code():
        objective = Objective.model_validate(written)
        assert objective.scope in ("decision", "member")
    key = "credit.callable.path" if slot == "credit" else f"{slot}.path"
    assert [(reference.key, reference.path) for reference in import_paths(objective)] == [
        (key, ImportPath("not_a_module:Piece"))
    ]


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        ("nowhere", {}, "is no import path; write package.module:name"),
        ("no_such_module:Region", {}, "cannot be imported: ModuleNotFoundError"),
        (
            f"{HERE}:Lin",
            {},
            f"trust.path = '{HERE}:Lin': '{HERE}' has no class 'Lin'; it has Halved, Line, Loud, Mute, Signed, Silent,"
            " Stranger; did you mean Line?",
        ),
        (f"{HERE}:preset", {}, "it is of type function and no class; name a class"),
        (f"{HERE}:Line", {"slop": 1.0}, "settings.slop = 1.0: unknown key; allowed: slope; did you mean slope?"),
        (f"{HERE}:Line", {"slope": -1.0}, "settings.slope = -1.0: must be greater than 0"),
        (
            f"{HERE}:Mute",
            {},
            "Mute lacks __call__; groupwise.objective.slot.TrustSlot says what each of them is given and returns",
        ),
        (f"{HERE}:Silent", {}, "states no scope; write scope: ClassVar[str] = 'decision' or 'member' or 'batch'"),
        (f"{HERE}:Loud", {}, "says 'token' as its scope; write"),
        (
            f"{HERE}:Stranger",
            {},
            "Stranger does not extend groupwise.objective.slot.TrustSlot; write class Stranger(groupwise.ob",
        ),
        (f"{HERE}:Signed", {}, "Signed does not extend groupwise.objective.slot.TrustSlot"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_read(path: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"trust") as caught:
        preset(path, settings)
    assert message in str(caught.value)
