"""The laws over every kind of every slot, all pairs of kinds, and full combinations."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests import laws
from tests.laws import BASE, SLOTS, World, build, extremes, outcome, pairs, plan_of, prepared, same, same_outcome, singles, slot_kinds, slot_tables, world
from tests.objective.advantage.groups import grouped
from torch import Tensor

from groupwise.config import validate
from groupwise.objective import Objective
from groupwise.objective.advantage import RunningStd
from groupwise.objective.decisions import Decisions
from groupwise.objective.running import Running
from groupwise.objective.stop_gradient import recording, replaying
from groupwise.records import Scored

SINGLES = list(singles())
LOSS_SLOTS = ("smoothing", "ratio", "trust", "credit", "correction", "aggregation", "divergence")

# Law 1: the gradient of a region by the log-ratio is that of S = rho A, or of S = A lp whatever the level.
REGIONS = {
    "unbounded": "ratio",
    "clip": "ratio",
    "asymmetric_clip": "ratio",
    "dual_clip": "ratio",
    "gaussian": "ratio",
    "cispo": "log_prob",
}
LEVELS = {"token", "geometric", "arithmetic", "product"}
SMOOTHINGS = {"identity", "ema"}
# Law 5: what scaling the rewards by 10 does.
SCALING = {"z_score": 1.0, "rank": 1.0, "batch_std": 1.0, "running_std": 1.0, "centred": 10.0, "leave_one_out": 10.0, "accepted": None}


def _on_policy(given: World) -> World:
    return World(given.mask, given.group, {**given.wide, "old": given.wide["log_prob"]}, given.tall)


def _recursion(objective: Objective, mask: Tensor) -> Tensor:
    """`[B, T, T]`: how `r'_s` of a member depends on `r_t`, at ratio 1."""
    members, width = mask.shape
    matrix = torch.zeros(members, width, width, dtype=torch.float64)
    for b in range(members):
        row = torch.zeros(width, dtype=torch.float64)
        for order, t in enumerate(mask[b].nonzero()[:, 0].tolist()):
            own = torch.nn.functional.one_hot(torch.tensor(t), width).double()
            smoothing = objective.smoothing
            if smoothing.kind == "identity" or smoothing.detach or (order == 0 and smoothing.init == "first"):
                row = own
            else:
                row = smoothing.beta * own + (1 - smoothing.beta) * row
            matrix[b, t] = row
    return matrix


def _expected_on_policy(objective: Objective, given: World) -> Tensor:
    """`-dL/dlp` of the policy term at `d = 0`, from the aggregation weights, the credit and the advantage alone."""
    plan = plan_of(objective, given)
    log_prob = torch.where(given.mask, given.wide["log_prob"], 0.0)
    advantage = torch.where(plan.mask, plan.advantage, 0.0)
    norm = torch.where(given.mask, given.wide["score_norm"], 0.0)
    credit = objective.credit(Decisions(plan.mask, log_prob, log_prob, advantage, score_norm=norm))
    own = plan.weight * credit * advantage
    region = objective.trust
    if (getattr(region, "form", None) or REGIONS[region.kind]) == "log_prob":
        return own
    if getattr(objective.ratio, "gradient", "token") == "sequence":
        total = own.sum(1, keepdim=True) / (1 if objective.ratio.kind == "product" else plan.mask.sum(1, keepdim=True).clamp(min=1))
        own = torch.where(plan.mask, total, 0.0)
    elif objective.ratio.kind != "token":
        return own
    return (_recursion(objective, plan.mask).transpose(1, 2) @ own[:, :, None])[:, :, 0]


def test_every_kind_states_its_laws() -> None:
    assert {laws.name_of(kind) for kind in slot_kinds("trust")} == set(REGIONS), "state law 1 for the new region in REGIONS"
    assert {laws.name_of(kind) for kind in slot_kinds("ratio")} == LEVELS, "state law 1 for the new level in _expected_on_policy"
    assert {laws.name_of(kind) for kind in slot_kinds("smoothing")} == SMOOTHINGS, "state law 1 for the new smoothing in _recursion"
    assert {laws.name_of(kind) for kind in slot_kinds("advantage")} == set(SCALING), "state law 5 for the new advantage in SCALING"


def test_law_1_on_policy_gradient() -> None:
    given = _on_policy(world(5))
    smoothings, ratios, trusts, credits = (slot_tables(slot, switches=True) for slot in ("smoothing", "ratio", "trust", "credit"))
    tested = 0
    for smoothing, ratio, trust, credit in (
        *itertools.product(smoothings, ratios, trusts, [{}]),
        *itertools.product([{"kind": "ema"}], [{"kind": "token"}, {"kind": "arithmetic", "gradient": "token"}], trusts, credits),
    ):
        objective = build(smoothing=smoothing, ratio=ratio, trust=trust, credit=credit)
        if objective is None:
            continue
        actual = -outcome(objective, given).gradients["log_prob"]
        same(actual, _expected_on_policy(objective, given), f"{smoothing} {ratio} {trust} {credit}")
        tested += 1
    assert tested >= 247


@pytest.mark.parametrize("aggregation", slot_tables("aggregation"), ids=str)
def test_law_1_holds_under_every_aggregation(aggregation: laws.Table) -> None:
    given = _on_policy(world(6))
    for ratio in slot_tables("ratio", switches=True):
        objective = build(ratio=ratio, aggregation=aggregation)
        assert objective is not None
        same(-outcome(objective, given).gradients["log_prob"], _expected_on_policy(objective, given), str(ratio))


@pytest.mark.parametrize(("name", "objective"), SINGLES, ids=[name for name, _ in SINGLES])
def test_laws_2_and_4_for_every_kind_and_switch(name: str, objective: Objective) -> None:
    laws.invariances(objective, world(7))
    laws.micro_batches(objective, world(7), outcome(objective, world(7)), 1)
    for given in extremes():
        laws.finite(objective, given)


@pytest.mark.parametrize(("name", "objective"), SINGLES, ids=[name for name, _ in SINGLES])
def test_law_3_gradient_is_the_finite_difference(name: str, objective: Objective) -> None:
    given = world(8)
    plan = plan_of(objective, given)
    base = given.scored()
    with recording() as stopped:
        loss = objective.loss(base, plan).total
    gradients = laws.gradients_of(loss, base)
    generator = torch.Generator().manual_seed(0)
    steps = {key: torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator) for key, leaf in base.tensors().items()}
    slope = sum(float((gradients[key] * step)[gradients[key] != 0].sum()) for key, step in steps.items())

    def at(distance: float) -> float:
        moved = {key: leaf.detach() + distance * steps[key] for key, leaf in base.tensors().items()}
        with replaying(list(stopped)):
            return float(objective.loss(Scored.from_tensors(moved), plan).total)

    width = 1e-6
    assert (at(width) - at(-width)) / (2 * width) == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kind", slot_kinds("advantage"), ids=laws.name_of)
def test_law_5_advantages(kind: type) -> None:
    rewards = ([0.0, 1.0, 3.0], [0.1, 0.1, 0.1], [1e6 + 0.1] * 2, [5.0, 4.0])

    def of(*groups: list[float]) -> Tensor:
        return kind()(grouped(*groups), Running())[0][:, 0]

    actual = of(*rewards)
    if kind.group_baseline:
        assert actual[3:8].tolist() == [0.0] * 5
        shifted = of(*([reward + 7.0 for reward in group] for group in rewards))
        same(shifted, actual, "shift", within=1e-9)
    factor = SCALING[laws.name_of(kind)]
    if factor is not None:
        same(of(*([10 * reward for reward in group] for group in rewards)), factor * actual, "scale", within=1e-9)


def test_law_5_the_running_baseline_keeps_shift_but_not_flatness() -> None:
    advantage = RunningStd(baseline="running")
    flat, _ = advantage(grouped([1.0, 3.0], [3.0, 3.0]), Running())
    moved, _ = advantage(grouped([2.0, 4.0], [4.0, 4.0]), Running())
    assert flat[2:].abs().min() > 0
    same(moved, flat, "shift")


@pytest.mark.parametrize("table", slot_tables("credit", switches=True), ids=str)
def test_law_5_credits(table: laws.Table) -> None:
    objective = build(credit=table, ratio={"kind": "token"})
    assert objective is not None
    given = world(9, width=9)
    leaves = {name: torch.where(given.mask, given.wide[name], 0.0).requires_grad_() for name in ("log_prob", "score_norm")}
    credit = objective.credit(Decisions(given.mask, leaves["log_prob"], leaves["log_prob"].detach(), given.mask.double(), score_norm=leaves["score_norm"]))
    assert not credit.requires_grad
    assert not credit[~given.mask].any()
    assert float(credit[5, 2]) == 1.0
    if not objective.credit.raw:
        same(credit.sum(1), given.mask.double().sum(1), "mean one")


IDENTITIES = [
    ({"smoothing": {"kind": "ema", "beta": 1.0}}, {"smoothing": {"kind": "identity"}}),
    ({"credit": {"temporal_decay": {"gamma": 1.0}}}, {}),
    ({"credit": {"temporal_decay": {"gamma": 1.0, "raw": True}}}, {}),
    ({"credit": {"log_decay": {"a": 0.0}}}, {}),
    ({"credit": {"gradient_adaptive": {"temperature": 1e15}}}, {}),
    ({"trust": {"kind": "gaussian", "sigma": 1e12}}, {"trust": {"kind": "unbounded"}}),
    ({"trust": {"kind": "asymmetric_clip", "eps_pos": 0.3, "eps_neg": 0.1}}, {"trust": {"kind": "clip", "low": 0.1, "high": 0.3}}),
    ({"trust": {"kind": "dual_clip", "bound": 1e12}}, {"trust": {"kind": "clip"}}),
    ({"trust": {"kind": "clip", "low": 1e12, "high": 1e12}}, {"trust": {"kind": "unbounded"}}),
    ({"correction": {"kind": "mask", "maximum": 1e-30}, "entropy": 0.0}, {"policy_weight": 0.0, "entropy": 0.0}),
    ({"divergence": {"kind": "k3", "beta": 0.0}}, {"divergence": {"kind": "none"}}),
    ({"admission": {"kind": "positive_share", "threshold": -1e9}}, {"admission": {"kind": "informative"}}),
    ({"admission": {"kind": "resample"}}, {"admission": {"kind": "informative"}}),
]


@pytest.mark.parametrize(("special", "plain"), IDENTITIES, ids=[str(special) for special, _ in IDENTITIES])
def test_law_6_identities(special: laws.Table, plain: laws.Table) -> None:
    one, other = (validate(Objective, BASE | table, source="law") for table in (special, plain))
    same_outcome(outcome(one, world(10)), outcome(other, world(10)), str(special), metrics=False)


def test_law_6_under_every_level() -> None:
    for ratio in slot_tables("ratio", switches=True):
        one, other = build(ratio=ratio, smoothing={"kind": "ema", "beta": 1.0}), build(ratio=ratio)
        assert one is not None
        assert other is not None
        same_outcome(outcome(one, world(10)), outcome(other, world(10)), str(ratio), metrics=False)


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(SLOTS, 2)), ids=lambda slot: slot)
def test_law_8_pairs_of_kinds(first: str, second: str) -> None:
    given, hard = world(11), extremes()
    for name, objective in pairs(first, second):
        try:
            laws.invariances(objective, given)
            for case in hard:
                laws.finite(objective, case)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


def test_law_8_sample_of_full_combinations() -> None:
    for number, (name, objective) in enumerate(laws.sample(60, seed=1)):
        try:
            laws.invariances(objective, world(20 + number))
            for case in extremes():
                laws.finite(objective, case)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", slot_tables("smoothing"), ids=str)
@pytest.mark.parametrize("trust", slot_tables("trust"), ids=str)
def test_law_8_full_product_of_the_loss(smoothing: laws.Table, trust: laws.Table) -> None:
    """All kinds of the slots that act in the loss; advantage and admission reach it only as a tensor and a mask (below)."""
    given, hard = world(12), extremes()[0]
    slots = [slot for slot in LOSS_SLOTS if slot not in ("smoothing", "trust")]
    for tables in itertools.product(*(slot_tables(slot) for slot in slots)):
        objective = build(smoothing=smoothing, trust=trust, **dict(zip(slots, tables, strict=True)))
        if objective is None:
            continue
        whole = outcome(objective, given)
        laws.padding(objective, given, whole)
        laws.micro_batches(objective, given, whole, 3)
        laws.finite(objective, hard)


@pytest.mark.slow
@pytest.mark.parametrize("advantage", slot_tables("advantage", switches=True), ids=str)
@pytest.mark.parametrize("admission", slot_tables("admission"), ids=str)
def test_law_8_advantage_and_admission_under_samples_of_the_rest(advantage: laws.Table, admission: laws.Table) -> None:
    for name, base in laws.sample(10, seed=3):
        tree = base.model_dump(mode="json") | {"advantage": advantage, "admission": admission}
        laws.invariances(validate(Objective, tree, source=name), world(13))


def test_nothing_is_lost_where_every_group_is_flat() -> None:
    given = world(14)
    flat = World(given.mask, given.group, given.wide, {**given.tall, "correct": torch.ones(7).double(), "format": torch.ones(7).double()})
    for admission in slot_tables("admission"):
        objective = build(admission=admission)
        assert objective is not None
        found = outcome(objective, flat)
        assert found.value.isfinite()
        assert not found.gradients["log_prob"].any()
        # The auxiliary term needs no group; divergence and entropy act on whatever is admitted.
        assert found.gradients["auxiliary.supervised"].abs().min() > 0
        assert bool(found.gradients["entropy"].any()) == bool(prepared(objective, flat).admitted.any())
