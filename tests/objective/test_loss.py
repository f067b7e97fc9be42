"""The metrics of the loss against direct computation over valid decisions, on members with holes, without decisions and
of one decision.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests import laws
from tests.laws import build, plan_of, prepared, slot_tables, world
from torch import Tensor

from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored
from groupwise.schedule import Constant
from groupwise.statistics import add, finish


def rows(values: Tensor, mask: Tensor) -> list[list[float]]:
    """The valid numbers of each member."""
    return [[float(value) for value in row[valid]] for row, valid in zip(values.detach(), mask, strict=True)]


def flat(values: list[list[float]]) -> Tensor:
    return torch.tensor([value for row in values for value in row], dtype=torch.float64)


def smoothed(ratios: list[float], beta: float) -> list[float]:
    averages: list[float] = []
    for ratio in ratios:
        averages.append(beta * ratio + (1 - beta) * averages[-1] if averages else ratio)
    return averages


def test_metrics_of_all_compatible_innovations() -> None:
    objective, inputs = Objective.preset("all_compatible"), world(31, width=9)
    plan, scored = plan_of(objective, inputs), inputs.scored()
    numbers = finish(objective.loss(scored, plan).statistics)
    mask = plan.acted.mask
    log_prob, old = (rows(value, mask) for value in (scored.log_prob, plan.acted.old_log_prob))
    sign = rows(plan.advantage.sign().expand_as(mask), mask)
    raw = [[math.exp(a - b) for a, b in zip(*pair, strict=True)] for pair in zip(log_prob, old, strict=True)]
    level = [smoothed(row, 0.9) for row in raw]
    surprise = [torch.tensor([abs(value) for value in row], dtype=torch.float64) for row in log_prob]
    softmax = [(len(row) * row.softmax(0)).tolist() for row in surprise]
    decay = [[0.95**t for t in range(len(row))] for row in raw]
    decay = [[len(row) * value / sum(row) for value in row] for row in decay]
    clipped = [
        [(s > 0 and r > 1.3) or (s < 0 and r < 0.9) for r, s in zip(*pair, strict=True)]
        for pair in zip(level, sign, strict=True)
    ]
    is_clipped, signs, ratios = flat(clipped), flat(sign), flat(level)
    # Under the average a decision teaches as long as one of its member from it on is not held.
    silent = flat([[all(row[place:]) for place in range(len(row))] for row in clipped])
    filled = [row for row in decay if row]
    expected = {
        "ema/raw_weights_variance": float(flat(raw).var(correction=0)),
        "ema/smoothed_weights_variance": float(ratios.var(correction=0)),
        "ema/variance_reduction_ratio": 1 - float(ratios.var(correction=0) / flat(raw).var(correction=0)),
        "gradient_adaptive/avg_gradient_norm": float(torch.cat(surprise).mean()),
        "gradient_adaptive/weight_variance": float(flat(softmax).var(correction=0)),
        "temporal_decay/weight_sum": sum(sum(row) for row in filled) / len(filled),
        "temporal_decay/first_weight": sum(row[0] for row in filled) / len(filled),
        "temporal_decay/last_weight": sum(row[-1] for row in filled) / len(filled),
        "asymmetric/pos_advantage_ratio": float((signs > 0).double().mean()),
        "asymmetric/neg_advantage_ratio": float((signs < 0).double().mean()),
        "clip_ratio/region_mean": float(is_clipped.mean()),
        "clip_ratio/high_mean": float((is_clipped * (signs > 0)).mean()),
        "clip_ratio/low_mean": float((is_clipped * (signs < 0)).mean()),
        "zero_gradient_fraction/positive": float(silent[signs > 0].mean()),
        "zero_gradient_fraction/negative": float(silent[signs < 0].mean()),
        "on_policy_fraction": float((flat(log_prob) == flat(old)).double().mean()),
        "effective_sample_size": float(ratios.sum() ** 2 / (len(ratios) * ratios.square().sum())),
    }
    assert is_clipped.sum() > 0
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    for percent in (1, 5, 50, 95, 99):
        # The smallest value that at least so many do not exceed, to half a bin.
        exact = float(ratios.sort().values[math.ceil(percent / 100 * len(ratios)) - 1])
        assert math.log(numbers[f"ratio/p{percent}"]) == pytest.approx(math.log(exact), rel=0.0093, abs=1e-9)


def test_metrics_of_the_aggressive_combination() -> None:
    objective, inputs = Objective.preset("aggressive"), world(32, width=9)
    plan, scored = plan_of(objective, inputs), inputs.scored()
    numbers = finish(objective.loss(scored, plan).statistics)
    mask = plan.acted.mask
    log_prob, old = (rows(value, mask) for value in (scored.log_prob, plan.acted.old_log_prob))
    mean = [
        sum(math.exp(a - b) for a, b in zip(*pair, strict=True)) / len(pair[0])
        for pair in zip(log_prob, old, strict=True)
        if pair[0]
    ]
    lengths = [len(row) for row in log_prob if row]
    level = torch.tensor([value for value, n in zip(mean, lengths, strict=True) for _ in range(n)], dtype=torch.float64)
    advantage = flat(rows(plan.advantage.expand_as(mask), mask))
    gate = (-((level - 1) ** 2) / (2 * 0.2**2)).exp()
    expected = {
        "amic/sequence_weights_variance": float(torch.tensor(mean, dtype=torch.float64).var(correction=0)),
        "amic/avg_sequence_length": sum(lengths) / len(lengths),
        "ptrw/trust_weights_mean": float(gate.mean()),
        "ptrw/loss_mean": float(-(gate * level * advantage).mean()),
        "zero_gradient_fraction/positive": float((gate < 0.01)[advantage > 0].double().mean()),
        "zero_gradient_fraction/negative": float((gate < 0.01)[advantage < 0].double().mean()),
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, abs=1e-12)


REACHING = [
    (smoothing, ratio, trust)
    for smoothing in ({"kind": "identity"}, {"kind": "ema"}, {"kind": "ema", "detach": True})
    for ratio in slot_tables("ratio", switches=True)
    for trust in slot_tables("trust")
    if trust["kind"] in ("clip", "aspo", "cispo", "gmpo", "dppo", "kl_cov")
]


@pytest.mark.slow
@pytest.mark.parametrize("by_decision", [False, True], ids=["one advantage a member", "one a decision"])
@pytest.mark.parametrize("correction", ["none", "interval"])
def test_the_share_without_gradient_is_that_of_the_gradient(by_decision: bool, correction: str) -> None:
    """Every smoothing and ratio, with a correction that drops decisions: what a later decision or the whole member
    gives counts as well.
    """
    inputs, compared = world(41, spread=0.6, width=12), 0
    if by_decision:
        values = torch.rand(inputs.mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).round(
            decimals=1
        )
        inputs = inputs.with_map(torch.where(inputs.mask, values, torch.nan))
    dropping = {"kind": correction, **({"lower": 0.9} if correction == "interval" else {})}
    for smoothing, ratio, trust in REACHING:
        objective = (
            None
            if by_decision and trust["kind"] == "gmpo"
            else build(smoothing=smoothing, ratio=ratio, trust=trust, correction=dropping)
        )
        if objective is None:
            continue
        bare = objective.model_copy(update={"entropy": Constant(value=0.0), "auxiliary": {}})
        batch, live = prepared(bare, inputs), inputs.scored()
        plan = bare.plan(batch)
        loss = bare.loss(live, plan)
        gradients = torch.autograd.grad(loss.total, (live.log_prob, live.mean_shift), allow_unused=True)
        silent = torch.stack([gradient == 0 for gradient in gradients if gradient is not None]).all(0)
        metrics = finish(loss.statistics)
        for sign, chosen in (("positive", plan.advantage > 0), ("negative", plan.advantage < 0)):
            expected = float(silent[plan.acted.mask & chosen].double().mean())
            assert metrics[f"zero_gradient_fraction/{sign}"] == pytest.approx(expected, abs=1e-12), (
                smoothing,
                ratio,
                trust,
            )
        compared += 1
    assert compared > 60


@pytest.mark.parametrize("name", ["ema", "conservative", "balanced", "all_compatible"])
def test_micro_batches_add_to_the_share_under_an_average(name: str) -> None:
    """Sixteen answers of 200 tokens at the third update: 11 and 32 % of the terms are held, and hardly a decision is
    without a gradient.
    """
    generator = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(16, 200, dtype=torch.float64, generator=generator) - 0.5
    log_prob = (old + 0.25 * torch.randn(16, 200, dtype=torch.float64, generator=generator)).clamp(max=-1e-3)
    objective = Objective.preset(name)
    batch = objective.prepare(
        Rollouts(torch.arange(16) // 8, torch.ones(16, 200, dtype=torch.bool), old, {"right": torch.arange(16) % 2.0}),
        objective.init(),
    )
    plan, leaf = objective.plan(batch), log_prob.clone().requires_grad_()
    losses = [objective.loss(Scored(leaf[rows]), plan.select(rows)) for rows in torch.arange(16).split(5)]
    sum(part.total for part in losses).backward()
    metrics = finish(add(part.statistics for part in losses))
    assert leaf.grad is not None
    for sign, chosen in (("positive", batch.advantage[:, 0] > 0), ("negative", batch.advantage[:, 0] < 0)):
        assert metrics[f"zero_gradient_fraction/{sign}"] == pytest.approx(
            float((leaf.grad[chosen] == 0).double().mean()), abs=1e-12
        )
    assert metrics["clip_ratio/region_mean"] > 0.1 > 0.01 > metrics["zero_gradient_fraction/negative"]


@pytest.mark.parametrize("name", ["all_compatible", "ema", "temporal_decay", "grpo_guard", "aggressive"])
def test_packed_is_only_faster(name: str) -> None:
    objective, holes = (
        Objective.preset(name, **{"credit.log_decay.a": 2.0} if name == "temporal_decay" else {}),
        world(36, width=9),
    )
    assert not plan_of(objective, holes).acted.packed
    mask = torch.arange(9)[None] < torch.tensor([9, 5, 1, 0, 3, 8, 2])[:, None]
    # What the holes held is no number; here some of them count.
    wide = {
        key: torch.where(holes.mask, value, 0.5 if key == "step_size" else -0.5) for key, value in holes.wide.items()
    }
    inputs = replace(holes, mask=mask, wide=wide)
    plan = plan_of(objective, inputs)
    assert plan.acted.packed
    assert plan.select(torch.tensor([2, 0, -1])).acted.packed
    quick, slow = (laws.Outcome(torch.tensor(0.0), {}, {}) for _ in range(2))
    for packed in (True, False):
        scored = inputs.scored()
        loss = objective.loss(scored, replace(plan, acted=replace(plan.acted, packed=packed)))
        outcome = laws.Outcome(loss.total.detach(), laws.gradients_of(loss.total, scored), finish(loss.statistics))
        quick, slow = (outcome, slow) if packed else (quick, outcome)
    laws.same_outcome(quick, slow, name)


def test_metrics_do_not_keep_the_graph() -> None:
    objective, inputs = Objective.preset("all_compatible", entropy=0.1), world(34)
    statistics = objective.loss(inputs.scored(), plan_of(objective, inputs)).statistics
    assert not any(statistic.sums.requires_grad for statistic in statistics.values())


@pytest.mark.parametrize("name", ["grpo", "gspo_token", "aggressive", "all_compatible", "clip_cov", "vespo"])
def test_a_live_log_prob_that_is_counted_makes_no_number_of_the_loss_or_its_metrics_nan(name: str) -> None:
    objective, inputs = Objective.preset(name), world()
    log_prob = inputs.wide["log_prob"].clone()
    log_prob[0, 0] = float("nan")
    loss = objective.cotangents(
        Scored(log_prob), objective.plan(prepared(objective, inputs), not_finite="counted")
    ).loss
    metrics = finish(loss.statistics)
    assert loss.total.isfinite()
    assert "ratio/p50" in metrics
    assert metrics["log_prob/not_finite"] == 1


def shares(objective: Objective, log_prob: Tensor, counted: bool = False) -> tuple[dict[str, float], Tensor]:
    """The metrics of two members of four decisions, a good and a bad one, and their gradient."""
    old, mask = torch.full((2, 4), -30.0, dtype=torch.float64), torch.ones(2, 4, dtype=torch.bool)
    rollouts = Rollouts(torch.tensor([0, 0]), mask, old, {"correct": [1.0, 0.0]})
    batch = objective.prepare(rollouts, objective.init())
    live = log_prob.clone().requires_grad_()
    loss = objective.loss(Scored(live), objective.plan(batch, not_finite="counted" if counted else "refused"))
    (gradient,) = torch.autograd.grad(loss.total, live)
    return finish(loss.statistics), gradient


@pytest.mark.parametrize("smoothing", ["identity", "ema"])
def test_a_clamped_product_passes_no_gradient_on_and_is_counted(smoothing: str) -> None:
    changes = {"ratio.kind": "product", "smoothing.kind": smoothing, "trust.kind": "unbounded"}
    log_prob = torch.full((2, 4), -30.0, dtype=torch.float64) + torch.tensor([[25.0], [-1.0]])
    metrics, gradient = shares(Objective.preset("dr_grpo", **changes), log_prob)
    assert not gradient[0].any()
    assert gradient[1].all()
    assert metrics["zero_gradient_fraction/positive"] == 1
    assert metrics["zero_gradient_fraction/negative"] == 0


@pytest.mark.parametrize("name", ["dr_grpo", "gspo", "ema", "gmpo", "cispo"])
def test_a_log_prob_that_is_left_out_has_no_gradient_and_is_counted(name: str) -> None:
    log_prob = torch.full((2, 4), -30.0, dtype=torch.float64)
    log_prob[0, 2], log_prob[1, 0] = -math.inf, math.nan
    metrics, gradient = shares(Objective.preset(name), log_prob, counted=True)
    assert (gradient == 0).double().mean(1).tolist() == [0.25, 0.25]
    assert metrics["zero_gradient_fraction/positive"] == metrics["zero_gradient_fraction/negative"] == 0.25


def test_a_divergence_that_the_domain_did_not_compute_is_absent_and_not_zero() -> None:
    objective = Objective.preset("dr_grpo", **{"divergence.kind": "exact", "divergence.beta": 0.0})
    metrics, _ = shares(objective, torch.full((2, 4), -30.5, dtype=torch.float64))
    assert "kl" not in metrics


def test_each_term_has_its_sign_and_its_coefficient() -> None:
    # On-policy two members of one decision each: S = A = +-sqrt(1/2), which cancel; entropies 1 and 3, weights 1/2.
    objective = Objective.preset("bnpo", **{"entropy": 0.1, "policy_weight": 0.25})
    group, mask, old = (
        torch.tensor([0, 0]),
        torch.ones(2, 1, dtype=torch.bool),
        torch.full((2, 1), -1.0, dtype=torch.float64),
    )
    plan = objective.plan(objective.prepare(Rollouts(group, mask, old, {"correct": [1.0, 0.0]}), objective.init()))
    log_prob, entropy = old.clone().requires_grad_(), torch.tensor([[1.0], [3.0]], dtype=torch.float64).requires_grad_()
    loss = objective.loss(Scored(log_prob, entropy=entropy), plan)
    torch.testing.assert_close(float(loss.total.detach()), -0.1 * 2.0)
    by_log_prob, by_entropy = torch.autograd.grad(loss.total, (log_prob, entropy))
    slope = 0.25 * 0.5 * math.sqrt(0.5)
    torch.testing.assert_close(by_log_prob, torch.tensor([[-slope], [slope]], dtype=torch.float64))
    torch.testing.assert_close(by_entropy, torch.full_like(entropy, -0.05))
