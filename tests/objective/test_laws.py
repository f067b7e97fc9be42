"""The laws over every kind of every slot, all pairs of kinds, and full combinations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests import laws
from tests.laws import (
    BASE,
    SLOTS,
    World,
    build,
    extremes,
    gradients_of,
    outcome,
    pairs,
    prepared,
    same,
    same_outcome,
    singles,
    slot_kinds,
    slot_tables,
    world,
)
from tests.objective.small import grouped
from torch import Tensor

from groupwise.config import validate
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.batch import Acted, Running
from groupwise.objective.decisions import Decisions, keyed_uniform

SINGLES = list(singles())

# Law 1: at ratio 1 a region's gradient is that of S = rho A ("ratio"), of S = A lp whatever the level ("log_prob"), of
# the latter for good decisions and the former for others ("mixed"), or one shared by a member ("member"). A region that
# draws has none on the drawn decisions.
REGIONS = {
    "unbounded": "ratio",
    "clip": "ratio",
    "asymmetric_clip": "ratio",
    "dual_clip": "ratio",
    "gaussian": "ratio",
    "gaussian_kl": "ratio",
    "sapo": "ratio",
    "clip_cov": "ratio",
    "kl_cov": "ratio",
    "cispo": "log_prob",
    "topr": "log_prob",
    "vespo": "log_prob",
    "dppo": "log_prob",
    "aspo": "mixed",
    "gmpo": "member",
}
LEVELS = {"token", "geometric", "arithmetic", "product", "transition"}
SMOOTHINGS = {"identity", "ema"}


@dataclass(frozen=True)
class Keeps:
    """Law 5: what an advantage keeps."""

    flat: bool
    """A flat group is exactly 0."""
    shift: bool
    """Adding a number to every reward changes nothing."""
    scale: float | None
    """What ten times the rewards does; `None` for nothing that can be said."""


COMPARES = Keeps(flat=True, shift=True, scale=1.0)
CENTRES = Keeps(flat=True, shift=True, scale=10.0)
ADVANTAGES = {
    "z_score": COMPARES,
    "rank": COMPARES,
    "batch_std": COMPARES,
    "per_reward": COMPARES,
    "win_rate": COMPARES,
    "per_prompt": Keeps(flat=False, shift=True, scale=1.0),
    "per_prompt group": COMPARES,
    "centred": CENTRES,
    "leave_one_out": CENTRES,
    "length_weighted": CENTRES,
    "mean_scaled": Keeps(flat=True, shift=False, scale=1.0),
    "accepted": Keeps(flat=False, shift=False, scale=None),
    "constant": Keeps(flat=False, shift=False, scale=10.0),
    "running_std": COMPARES,
    "running_std running": Keeps(flat=False, shift=True, scale=1.0),
    "whiten": Keeps(flat=False, shift=True, scale=1.0),
    "whiten group": COMPARES,
}


def _on_policy(inputs: World) -> World:
    log_prob = inputs.wide["log_prob"]
    return World(
        inputs.mask,
        inputs.group,
        {
            **inputs.wide,
            "old": log_prob,
            "behaviour": log_prob,
            "mean_shift": 0 * log_prob,
            "old_divergence": 0 * log_prob,
        },
        inputs.tall,
    )


def _recursion(objective: Objective, mask: Tensor) -> Tensor:
    """`[B, T, T]`: how `r'_s` of a member depends on `r_t`, at ratio 1."""
    members, width = mask.shape
    matrix = torch.zeros(members, width, width, dtype=torch.float64)
    for b in range(members):
        row = torch.zeros(width, dtype=torch.float64)
        for order, t in enumerate(mask[b].nonzero()[:, 0].tolist()):
            position = torch.nn.functional.one_hot(torch.tensor(t), width).double()
            smoothing = objective.smoothing
            if smoothing.kind == "identity" or smoothing.detach or (order == 0 and smoothing.init == "first"):
                row = position
            else:
                row = smoothing.beta * position + (1 - smoothing.beta) * row
            matrix[b, t] = row
    return matrix


def _drawn(objective: Objective, decisions: Decisions) -> Tensor:
    """Where clip_cov draws, by sorting."""
    region, mask = objective.trust, decisions.mask
    assert decisions.acted.member is not None
    log_prob, advantage = (value - value[mask].mean() for value in (decisions.log_prob, decisions.advantage))
    eligible = mask & (log_prob * advantage > region.lower) & (log_prob * advantage < region.upper)
    lots = torch.where(
        eligible, keyed_uniform(decisions.acted.member[:, None], torch.arange(mask.shape[1]), 0), 2.0
    ).flatten()
    number = min(max(1, int(region.share * int(mask.sum()))), int(eligible.sum()))
    drawn = torch.zeros_like(mask).flatten()
    drawn[lots.argsort()[:number]] = True
    return drawn.view_as(mask)


def _expected_on_policy(objective: Objective, inputs: World, plan: Plan) -> dict[str, Tensor]:
    """`-dL/dlp` and `-dL/dshift` of the policy term at ratio 1, from the aggregation weights, the credit and the
    advantage alone.
    """
    names = ("log_prob", "score_norm", "step_size", "entropy")
    fields = {name: torch.where(inputs.mask, inputs.wide[name], 0.0) for name in names}
    log_prob = fields["log_prob"]
    decisions = Decisions(
        Acted(plan.acted.mask, log_prob, member=plan.acted.member, step_size=fields["step_size"]),
        log_prob,
        torch.where(plan.acted.mask, plan.advantage, 0.0),
        score_norm=fields["score_norm"],
        entropy=fields["entropy"],
    )
    policy_part, nothing = plan.weight * objective.credit(decisions) * decisions.advantage, torch.zeros_like(log_prob)
    form = getattr(objective.trust, "form", None) or REGIONS[objective.trust.kind]
    if form == "log_prob":
        return {"log_prob": policy_part, "mean_shift": nothing}
    if form == "member":
        return {
            "log_prob": torch.where(plan.acted.mask, policy_part.sum(1, keepdim=True) / decisions.count, 0.0),
            "mean_shift": nothing,
        }
    direct = torch.where(decisions.advantage > 0, policy_part, 0.0) if form == "mixed" else nothing
    by_ratio = policy_part - direct
    if objective.trust.kind == "clip_cov":
        drawn = _drawn(objective, decisions)
        assert 0 < int(drawn.sum()) < int(plan.acted.mask.sum())
        by_ratio = policy_part * ~drawn
    if objective.ratio.kind == "transition":
        return {"log_prob": direct, "mean_shift": by_ratio}
    return {"log_prob": direct + _to_log_probs(objective, plan.acted.mask, by_ratio), "mean_shift": nothing}


def _to_log_probs(objective: Objective, mask: Tensor, by_ratio: Tensor) -> Tensor:
    """The gradient by the log-probs from that by each decision's log-ratio at the level."""
    if getattr(objective.ratio, "gradient", "token") == "sequence":
        total = by_ratio.sum(1, keepdim=True) / (
            1 if objective.ratio.kind == "product" else mask.sum(1, keepdim=True).clamp(min=1)
        )
        by_ratio = torch.where(mask, total, 0.0)
    elif objective.ratio.kind != "token":
        return by_ratio
    return (_recursion(objective, mask).transpose(1, 2) @ by_ratio[:, :, None])[:, :, 0]


def test_every_kind_states_its_laws() -> None:
    assert {laws.name_of(kind) for kind in slot_kinds("trust")} == set(REGIONS), (
        "state law 1 for the new region in REGIONS"
    )
    assert {laws.name_of(kind) for kind in slot_kinds("ratio")} == LEVELS, (
        "state law 1 for the new level in _expected_on_policy"
    )
    assert {laws.name_of(kind) for kind in slot_kinds("smoothing")} == SMOOTHINGS, (
        "state law 1 for the new smoothing in _recursion"
    )
    assert {laws.name_of(kind) for kind in slot_kinds("advantage")} == {name.split()[0] for name in ADVANTAGES}, (
        "state law 5 for the new advantage"
    )


def check_law_1(inputs: World, batch: Batch, objective: Objective, label: str) -> None:
    plan, scored = objective.plan(batch), inputs.scored()
    gradients = gradients_of(objective.loss(scored, plan).total, scored)
    for name, expected in _expected_on_policy(objective, inputs, plan).items():
        same(-gradients[name], expected, f"{name}: {label}")


def _batch_on_policy(seed: int) -> tuple[World, Batch]:
    """A world at ratio 1 and its batch, which no slot of the loss changes."""
    inputs = _on_policy(world(seed))
    return inputs, prepared(validate(Objective, BASE, source="law"), inputs)


def test_law_1_for_every_pair_of_level_and_region_and_every_credit_under_every_form() -> None:
    """The smoothings take turns; `test_law_1_on_policy_gradient` has all of them."""
    inputs, batch = _batch_on_policy(5)
    smoothings, ratios, trusts, credits = (
        slot_tables(slot, switches=True) for slot in ("smoothing", "ratio", "trust", "credit")
    )
    pairs_tested, smoothed = set(), set()
    for place, (ratio, trust) in enumerate(itertools.product(ratios, trusts)):
        turn = place + place // len(trusts)
        for smoothing in [smoothings[(turn + step) % len(smoothings)] for step in range(len(smoothings))]:
            objective = build(smoothing=smoothing, ratio=ratio, trust=trust)
            if objective is not None:
                check_law_1(inputs, batch, objective, f"{smoothing} {ratio} {trust}")
                pairs_tested.add((str(ratio), str(trust)))
                smoothed.add((str(smoothing), str(ratio)))
                break
    assert len(pairs_tested) >= 111
    assert len(smoothed) >= 25
    tested = 0
    for kind, credit in itertools.product(("unbounded", "cispo", "aspo", "gmpo", "clip_cov"), credits):
        trust = next(table for table in trusts if table["kind"] == kind)
        ratio, smoothing = ("transition", "identity") if tested % 2 else ("token", "ema")
        objective = build(smoothing={"kind": smoothing}, ratio={"kind": ratio}, trust=trust, credit=credit)
        objective = objective or build(ratio={"kind": "token"}, trust=trust, credit=credit)
        if objective is not None:
            check_law_1(inputs, batch, objective, f"{trust} {credit}")
            tested += 1
    assert tested >= 45


@pytest.mark.nightly
def test_law_1_on_policy_gradient() -> None:
    inputs, batch = _batch_on_policy(5)
    smoothings, ratios, trusts, credits = (
        slot_tables(slot, switches=True) for slot in ("smoothing", "ratio", "trust", "credit")
    )
    tested = 0
    for smoothing, ratio, trust, credit in (
        *itertools.product(smoothings, ratios, trusts, [{}]),
        *itertools.product(
            [{"kind": "ema"}], [{"kind": "token"}, {"kind": "arithmetic", "gradient": "token"}], trusts, credits
        ),
        *itertools.product([{"kind": "identity"}], [{"kind": "transition"}], trusts, credits),
    ):
        objective = build(smoothing=smoothing, ratio=ratio, trust=trust, credit=credit)
        if objective is not None:
            check_law_1(inputs, batch, objective, f"{smoothing} {ratio} {trust} {credit}")
            tested += 1
    assert tested >= 651


@pytest.mark.parametrize("aggregation", slot_tables("aggregation"), ids=str)
def test_law_1_holds_under_every_aggregation(aggregation: laws.Table) -> None:
    inputs, batch = _batch_on_policy(6)
    for ratio in slot_tables("ratio", switches=True):
        objective = build(ratio=ratio, aggregation=aggregation)
        assert objective is not None
        check_law_1(inputs, batch, objective, str(ratio))


FIRST_OF_SLOTS = {next(name for name, _ in SINGLES if name.startswith(slot)) for slot in SLOTS}
"""One kind of each slot: the laws one by one in `make test`, and of all kinds and switches in CI."""
ONE_BY_ONE = pytest.mark.parametrize(
    ("name", "objective"),
    [
        pytest.param(*single, marks=() if single[0] in FIRST_OF_SLOTS else pytest.mark.slow, id=single[0])
        for single in SINGLES
    ],
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "objective"), SINGLES, ids=[name for name, _ in SINGLES])
def test_laws_2_and_4_for_every_kind_and_switch(name: str, objective: Objective) -> None:
    laws.invariances(objective, world(7))
    laws.micro_batches(objective, world(7), outcome(objective, world(7)), 1)
    for inputs in (*extremes(), *laws.smallest()):
        laws.finite(objective, inputs)
    laws.same_names(objective, world(7), laws.smallest()[0])


KINDS = {f"{slot}={table}" for slot in SLOTS for table in slot_tables(slot)}


@pytest.mark.slow
def test_law_2_at_once_for_every_switch() -> None:
    """The kinds are in the covering choice of law 8."""
    switches = [(name, objective) for name, objective in SINGLES if name not in KINDS]
    assert len(switches) > 25
    for name, objective in switches:
        try:
            laws.at_once(objective, laws.Prepared.of(objective, world(7)))
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


@ONE_BY_ONE
def test_law_3_gradient_is_the_finite_difference(name: str, objective: Objective) -> None:
    laws.derivative(objective, world(8))


@pytest.mark.parametrize("table", slot_tables("advantage", switches=True), ids=str)
def test_law_5_advantages(table: laws.Table) -> None:
    advantage = validate(Objective, {"advantage": table}, source="law").advantage
    keeps = ADVANTAGES.get(f"{table['kind']} {table.get('baseline')}", ADVANTAGES[table["kind"]])
    rewards = ([0.0, 1.0, 3.0], [0.1, 0.1, 0.1], [1e6 + 0.1] * 2, [5.0, 4.0])

    def of(*groups: list[float]) -> Tensor:
        return advantage(grouped(*groups, lengths=range(1, 11)), Running())[0][:, 0]

    actual = of(*rewards)
    assert (actual[3:8].tolist() == [0.0] * 5) == keeps.flat
    shifted = of(*([reward + 7.0 for reward in group] for group in rewards))
    assert (float((shifted - actual).abs().max()) <= 1e-9 * float(actual.abs().max())) == keeps.shift
    if keeps.scale is not None:
        same(
            of(*([10 * reward for reward in group] for group in rewards)), keeps.scale * actual, "scale", tolerance=1e-9
        )


@pytest.mark.parametrize("table", slot_tables("credit", switches=True), ids=str)
def test_law_5_credits(table: laws.Table) -> None:
    objective = build(credit=table, ratio={"kind": "token"})
    assert objective is not None
    inputs = world(9, width=9)
    leaves = {
        name: torch.where(inputs.mask, inputs.wide[name], 0.0).requires_grad_()
        for name in ("log_prob", "score_norm", "entropy")
    }
    log_prob, step_size = leaves["log_prob"], torch.where(inputs.mask, inputs.wide["step_size"], 0.0)
    acted = Acted(inputs.mask, log_prob.detach(), step_size=step_size)
    decisions = Decisions(
        acted, log_prob, inputs.mask.double(), score_norm=leaves["score_norm"], entropy=leaves["entropy"]
    )
    credit = objective.credit(decisions)
    assert not credit.requires_grad
    assert not credit[~inputs.mask].any()
    if any(link.masks for link in objective.credit.links()):
        assert set(credit.flatten().tolist()) <= {0.0, 1.0}
    elif not objective.credit.raw:
        assert float(credit[5, 2]) == 1.0
        same(credit.sum(1), inputs.mask.double().sum(1), "mean one")


@ONE_BY_ONE
def test_densities_are_served_unless_a_stage_reads_probabilities(name: str, objective: Objective) -> None:
    inputs = world(15)
    shift = 0.0 if objective.advantage.takes_negative else 0.5
    rollouts = inputs.rollouts(density=True, shift=shift, history_size=objective.advantage.history_size)
    if objective.trust.kind == "dppo" or any(
        getattr(link, "signal", None) in ("auto", "surprisal") for link in objective.credit.links()
    ):
        with pytest.raises(
            ValueError,
            match=(
                r"density=True.*needs the probabilities of discrete decisions; .*write"
                r" (trust.kind|credit.gradient_adaptive.signal)"
            ),
        ):
            objective.prepare(rollouts, objective.init())
        if (settled := objective.on(density=True)) != objective:
            assert "score_norm" in settled.requires
            settled.prepare(rollouts, settled.init())
        return
    loss = objective.loss(inputs.scored(), objective.plan(objective.prepare(rollouts, objective.init()))).total
    same(loss.detach(), outcome(objective, inputs).value, "density")


IDENTITIES = [
    ({"smoothing": {"kind": "ema", "beta": 1.0}}, {"smoothing": {"kind": "identity"}}),
    ({"credit": {"temporal_decay": {"gamma": 1.0}}}, {}),
    ({"credit": {"temporal_decay": {"gamma": 1.0, "raw": True}}}, {}),
    ({"credit": {"log_decay": {"a": 0.0}}}, {}),
    ({"credit": {"gradient_adaptive": {"temperature": 1e15}}}, {}),
    ({"trust": {"kind": "gaussian", "sigma": 1e12}}, {"trust": {"kind": "unbounded"}}),
    (
        {"trust": {"kind": "asymmetric_clip", "eps_pos": 0.3, "eps_neg": 0.1}},
        {"trust": {"kind": "clip", "low": 0.1, "high": 0.3}},
    ),
    ({"trust": {"kind": "dual_clip", "bound": 1e12}}, {"trust": {"kind": "clip"}}),
    ({"trust": {"kind": "clip", "low": 1e12, "high": 1e12}}, {"trust": {"kind": "unbounded"}}),
    (
        {"trust": {"kind": "gmpo", "low": 1e12, "high": 1e12}},
        {"trust": {"kind": "unbounded"}, "ratio": {"kind": "geometric"}},
    ),
    (
        {"trust": {"kind": "clip_cov", "low": 0.2, "high": 0.2, "lower": 50.0, "upper": 60.0}},
        {"trust": {"kind": "clip"}},
    ),
    ({"trust": {"kind": "kl_cov", "coefficient": 1e-15}}, {"trust": {"kind": "unbounded"}}),
    (
        {"trust": {"kind": "vespo", "k_pos": 1e-15, "lambda_pos": 1e-15, "k_neg": 1e-15, "lambda_neg": 1e-15}},
        {"trust": {"kind": "unbounded", "form": "log_prob"}},
    ),
    ({"advantage": {"kind": "batch_std", "of": "advantage"}}, {"advantage": {"kind": "whiten", "baseline": "group"}}),
    ({"correction": {"kind": "mask", "maximum": 1e-30}, "entropy": 0.0}, {"policy_weight": 0.0, "entropy": 0.0}),
    ({"divergence": {"kind": "k3", "beta": 0.0}}, {"divergence": {"kind": "none"}}),
    ({"admission": {"kind": "positive_share", "threshold": -1e9}}, {"admission": {"kind": "informative"}}),
    ({"admission": {"kind": "resample"}}, {"admission": {"kind": "informative"}}),
]


@pytest.mark.parametrize(("special", "plain"), IDENTITIES, ids=[str(special) for special, _ in IDENTITIES])
def test_law_6_identities(special: laws.Table, plain: laws.Table) -> None:
    special_case, plain_case = (validate(Objective, BASE | table, source="law") for table in (special, plain))
    same_outcome(outcome(special_case, world(10)), outcome(plain_case, world(10)), str(special), metrics=False)


def test_law_6_under_every_level() -> None:
    for ratio in slot_tables("ratio", switches=True):
        special_case, plain_case = build(ratio=ratio, smoothing={"kind": "ema", "beta": 1.0}), build(ratio=ratio)
        if special_case is None:
            assert ratio["kind"] == "transition"  # it reads no log-ratio that smoothing could act on
            continue
        assert plain_case is not None
        same_outcome(outcome(special_case, world(10)), outcome(plain_case, world(10)), str(ratio), metrics=False)


def test_law_8_every_pair_of_kinds_in_a_covering_choice_of_full_combinations() -> None:
    """Every pair of kinds of two slots of the loss stands in one of them; `test_law_8_pairs_of_kinds` has each pair of
    all slots by itself.
    """
    inputs, hard = world(11), extremes()
    # Plan and loss meet the slots before them as the tensors of a batch, which `at_once` sees to.
    batches: dict[str, laws.Prepared] = {}
    for number, (name, objective) in enumerate(laws.covering()):
        case, before = hard[number % len(hard)], str([getattr(objective, slot) for slot in laws.BEFORE_PLAN])
        try:
            if before not in batches:
                batches[before] = laws.Prepared.of(objective, inputs)
            laws.at_once(objective, batches[before])
            laws.finite_at(objective, case, prepared(objective, case))
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.slow
def test_the_covering_choice_holds_every_pair_of_kinds_that_is_accepted() -> None:
    chosen = [objective for _, objective in laws.covering()]
    for slot in laws.BEFORE_PLAN:
        assert {_kind_in(objective, slot) for objective in chosen} == {table["kind"] for table in slot_tables(slot)}
    for one, other in itertools.combinations([slot for slot in SLOTS if slot not in laws.BEFORE_PLAN], 2):
        found = {(_kind_in(objective, one), _kind_in(objective, other)) for objective in chosen}
        accepted = {(_kind_in(objective, one), _kind_in(objective, other)) for _, objective in pairs(one, other)}
        assert accepted <= found, (one, other)


def _kind_in(objective: Objective, slot: str) -> str:
    """The kind that an objective has in a slot; of the credit its link, where it has one."""
    if slot == "credit":
        return " ".join(link.kind for link in objective.credit.links())
    return getattr(objective, slot).kind


@pytest.mark.nightly
@pytest.mark.parametrize(("slot", "further_slot"), list(itertools.combinations(SLOTS, 2)), ids=lambda slot: slot)
def test_law_8_pairs_of_kinds(slot: str, further_slot: str) -> None:
    inputs, hard = world(11), extremes()
    for name, objective in pairs(slot, further_slot):
        try:
            laws.invariances(objective, inputs)
            for case in hard:
                laws.finite(objective, case)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error


def _batches(inputs: World) -> list[laws.Prepared]:
    """Batches of every form that the slots before the plan can give it: one advantage a member, one of a reward map,
    and a group that was dropped.
    """
    tables = [{}, {"advantage": {"kind": "centred"}, "admission": {"kind": "informative"}}]
    plain = [validate(Objective, BASE | table, source="law") for table in tables]
    generator = torch.Generator().manual_seed(3)
    wide = torch.rand(inputs.mask.shape, dtype=torch.float64, generator=generator)
    return [
        *(laws.Prepared.of(objective, inputs) for objective in plain),
        laws.Prepared.of(plain[1], inputs.with_map(wide)),
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("smoothing", slot_tables("smoothing"), ids=str)
@pytest.mark.parametrize("trust", slot_tables("trust"), ids=str)
def test_law_8_full_product(smoothing: laws.Table, trust: laws.Table) -> None:
    """Every combination of the slots of the policy's term. Two factors are tested by themselves, because they reach
    this one in one way only: what `prepare` does, as a batch's tensors (reading the slots themselves is an error here),
    and the divergence, as a term that is added.
    """
    inputs, hard = world(12), extremes()[0]
    batches, hard_batch = _batches(inputs), prepared(validate(Objective, BASE, source="law"), hard)
    for number, objective in enumerate(laws.product(smoothing=smoothing, trust=trust, divergence={"kind": "none"})):
        batch = batches[number % (2 if getattr(objective.trust, "whole_member", False) else 3)]
        try:
            laws.at_once(objective, batch)
            laws.finite_at(objective, hard, hard_batch)
        except Exception as error:
            raise AssertionError(f"{objective!r}: {error}") from error


@pytest.mark.nightly
@pytest.mark.parametrize("divergence", slot_tables("divergence"), ids=str)
def test_law_8_the_divergence_is_a_term_that_is_added(divergence: laws.Table) -> None:
    """The other factor of the full product: under every aggregation, correction and level, a divergence keeps the laws
    and moves no other term.
    """
    inputs, hard = world(12), extremes()[0]
    batch, hard_batch = _batches(inputs)[1], prepared(validate(Objective, BASE, source="law"), hard)
    none = validate(Objective, {"divergence": {"kind": "none"}}, source="law").divergence
    nothing = validate(Objective, {"policy_weight": 0.0}, source="law")
    for objective in laws.product(divergence=divergence, smoothing={"kind": "ema"}, trust={"kind": "clip"}, credit={}):
        laws.at_once(objective, batch)
        laws.finite_at(objective, hard, hard_batch)
        without = objective.model_copy(update={"divergence": none})
        divergence_only = objective.model_copy(
            update={name: getattr(nothing, name) for name in ("policy_weight", "entropy", "auxiliary")}
        )
        total, policy, term = (outcome(variant, inputs) for variant in (objective, without, divergence_only))
        same(total.value, policy.value + term.value, "loss")
        for name, gradient in total.gradients.items():
            same(
                gradient,
                sum(part.gradients.get(name, torch.zeros_like(gradient)) for part in (policy, term)),
                f"gradient by {name}",
            )


def before_plan() -> list[Any]:
    """Every advantage with every admission; in `make test` each advantage meets one, in turn."""
    admissions = slot_tables("admission", switches=True)
    return [
        pytest.param(advantage, admission, marks=() if row % len(admissions) == column else pytest.mark.slow)
        for row, advantage in enumerate(slot_tables("advantage", switches=True))
        for column, admission in enumerate(admissions)
    ]


@pytest.mark.parametrize(("advantage", "admission"), before_plan(), ids=str)
def test_law_8_product_of_what_prepare_does(advantage: laws.Table, admission: laws.Table) -> None:
    """The other factor of the full product: whatever the slots of the loss, these two give them a batch that keeps the
    laws.
    """
    objective = validate(Objective, BASE | {"advantage": advantage, "admission": admission}, source="law")
    inputs = world(13)
    batch_outcome = prepared(objective, inputs)
    batches = [batch for _, batch in laws.Prepared.of(objective, inputs).dealt]
    same(laws.undealt([batch.advantage for batch in batches]), batch_outcome.advantage, "advantage")
    assert torch.equal(laws.undealt([batch.admitted for batch in batches]), batch_outcome.admitted)
    for hard in extremes():
        assert prepared(objective, hard).advantage.isfinite().all()


@pytest.mark.nightly
@pytest.mark.parametrize("advantage", slot_tables("advantage", switches=True), ids=str)
@pytest.mark.parametrize("admission", slot_tables("admission"), ids=str)
def test_law_8_advantage_and_admission_under_samples_of_the_rest(advantage: laws.Table, admission: laws.Table) -> None:
    for name, base in laws.sample(10, seed=3):
        tree = base.model_dump(mode="json") | {"advantage": advantage, "admission": admission}
        takes_negative = validate(Objective, {"advantage": advantage}).advantage.takes_negative
        if not takes_negative and tree["divergence"].get("place") == "reward":
            tree["divergence"]["place"] = "loss"
        laws.invariances(validate(Objective, tree, source=name), world(13))


def test_nothing_is_lost_where_every_group_is_flat() -> None:
    inputs = world(14)
    flat = World(
        inputs.mask,
        inputs.group,
        inputs.wide,
        {**inputs.tall, "correct": torch.ones(7).double(), "format": torch.ones(7).double()},
    )
    for admission in slot_tables("admission"):
        objective = build(admission=admission)
        assert objective is not None
        flat_outcome = outcome(objective, flat)
        assert flat_outcome.value.isfinite()
        assert not flat_outcome.gradients["log_prob"].any()
        # The auxiliary term needs no group; divergence and entropy act on whatever is admitted.
        assert flat_outcome.gradients["auxiliary.supervised"].abs().min() > 0
        assert bool(flat_outcome.gradients["entropy"].any()) == bool(prepared(objective, flat).admitted.any())
