"""One optimiser step has one gradient, however it is computed and cut."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, recipe, supervised, weights

from groupwise.config import ConfigError
from groupwise.records import Scored
from groupwise.reference import FrozenReference, ReferencePolicy
from groupwise.streams import Streams, seed_everything
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.step.passes import step_demonstrations, supervised_gradient
from groupwise.training.step.rollouts import Collected
from groupwise.training.step.state import Progress, Step, TrainState
from groupwise.training.step.step import collect, policy_gradient, update_policy


def started(domain: ToyDomain, chosen: Recipe) -> TrainState:
    state = TrainState(Progress(), chosen.objective.init(), domain.learner)
    if chosen.objective.needs_reference:
        state.reference = ReferencePolicy(FrozenReference(), state.learner)
    return state


def step_of(domain: ToyDomain, chosen: Recipe, state: TrainState) -> Step:
    return Step(domain, chosen, state, Streams(0), World())


def gathered(chosen: Recipe, **domain: Any) -> tuple[ToyDomain, TrainState, Collected]:
    seed_everything(0)
    toy = ToyDomain(**domain)
    state = started(toy, chosen)
    return toy, state, collect(step_of(toy, chosen, state))


def gradient(
    toy: ToyDomain,
    chosen: Recipe,
    state: TrainState,
    collected: Collected,
    rows: torch.Tensor | None = None,
    *,
    on_policy: bool,
) -> torch.Tensor:
    toy.module.zero_grad()
    rows = torch.arange(len(collected.samples)) if rows is None else rows
    policy_gradient(
        step_of(toy, chosen, state),
        collected,
        rows,
        torch.zeros_like(collected.samples.old_log_prob),
        on_policy=on_policy,
    )
    return torch.cat(
        [parameter.grad.reshape(-1) for parameter in toy.module.parameters() if parameter.grad is not None]
    )


METHODS = [("dapo", {}), ("grpo", {}), ("gspo", {}), ("dapo", {"entropy": 0.01}), ("aggressive", {}), ("balanced", {})]


@pytest.mark.parametrize(("method", "objective"), METHODS)
def test_the_sampler_s_fields_give_the_gradient_of_a_rescoring(method: str, objective: Mapping[str, Any]) -> None:
    chosen = recipe(method=method, objective=objective)
    toy, state, collected = gathered(chosen)
    free = gradient(toy, chosen, state, collected, on_policy=True)
    scored = gradient(toy, chosen, state, collected, on_policy=False)
    assert free.abs().max() > 1e-3
    torch.testing.assert_close(free, scored, rtol=0, atol=1e-14)


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_micro_batches_change_nothing(size: int, on_policy: bool) -> None:
    chosen = recipe(method="grpo")
    toy, state, collected = gathered(chosen)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in toy.module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) * (not on_policy))
    whole_gradient = gradient(toy, chosen, state, collected, on_policy=on_policy)
    cut = replace(chosen, train=chosen.train.model_copy(update={"micro_batch_members": size}))
    torch.testing.assert_close(
        gradient(toy, cut, state, collected, on_policy=on_policy), whole_gradient, rtol=0, atol=1e-14
    )


def test_flat_groups_are_not_forwarded_and_others_are() -> None:
    chosen = recipe(method="dapo")
    toy, state, collected = gathered(chosen, reward_of=lambda index, action: float(action[0] % 2) if index % 2 else 1.0)
    flat = int((collected.batch.advantage == 0).all(1).sum())
    assert 0 < flat < 16
    for on_policy in (True, False):
        toy.num_scored = 0
        gradient(toy, chosen, state, collected, on_policy=on_policy)
        assert toy.num_scored == 16 - flat


def test_all_groups_flat_and_no_other_term_skips_the_update() -> None:
    chosen = recipe(method="dapo")
    toy, state, collected = gathered(chosen, reward_of=lambda index, action: 0.3)
    before = weights(toy.module)
    updates = update_policy(step_of(toy, chosen, state), collected)
    assert (updates.taken, updates.skipped) == (0, 1)
    assert torch.equal(weights(toy.module), before)
    assert state.objective.step == 1


def test_a_gradient_that_is_not_finite_leaves_everything_as_it_was() -> None:
    chosen = recipe(method="dapo")
    toy, state, collected = gathered(chosen)
    toy.module.out.weight.register_hook(lambda grad: grad * float("nan"))
    before = weights(toy.module)
    updates = update_policy(step_of(toy, chosen, state), collected)
    assert (updates.taken, updates.not_finite) == (0, 1)
    assert torch.equal(weights(toy.module), before)
    assert state.learner.optimiser.state_dict()["state"] == {}


@pytest.mark.parametrize(("everywhere", "value"), [(False, float("-inf")), (True, float("nan"))])
@pytest.mark.parametrize("method", ["dapo", "kl_cov", "rloo"])
def test_a_decision_without_a_number_is_left_out_and_counted(
    method: str, everywhere: bool, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the policy finds impossible weighs nothing; where the model gives no number at all, the update is left
    out. A loss of NaN was logged.
    """
    chosen = recipe(method=method, updates_per_batch=2)
    toy, state, collected = gathered(chosen)
    scored = toy.score

    def broken(samples: Any, rows: torch.Tensor, requires: frozenset[str]) -> Scored:
        fields = scored(samples, rows, requires)
        if state.objective.step == 0:
            return fields
        places = samples.mask[rows] if everywhere else samples.mask[rows] & (torch.arange(samples.mask.shape[1]) == 0)
        return replace(fields, log_prob=torch.where(places, value, fields.log_prob))

    toy.score = broken  # type: ignore[method-assign]
    before = weights(toy.module)
    updates = update_policy(step_of(toy, chosen, state), collected)
    second = updates.metrics[-1]
    assert second["log_prob/not_finite"] > 0
    assert any("was not finite and were left out" in remark for remark in updates.remarks)
    assert all(math.isfinite(number) for name, number in second.items() if name.startswith("loss"))
    if everywhere:
        assert (updates.taken, updates.not_finite) == (1, 1)
        assert set(second) == {"log_prob/not_finite"}
    else:
        assert (updates.taken, updates.not_finite) == (2, 0)
        assert not torch.equal(weights(toy.module), before)


def test_the_supervised_term_is_the_mean_over_its_own_decisions() -> None:
    chosen = supervised(demonstrations_per_step=6)
    toy = ToyDomain()
    state = started(toy, chosen)
    samples = step_demonstrations(step_of(toy, chosen, state))
    statistics = supervised_gradient(step_of(toy, chosen, state), samples)
    by_hand = (
        toy.score(samples, torch.arange(6), frozenset({"log_prob"})).auxiliary["supervised"].sum()
        / samples.auxiliary_count["supervised"].sum()
    )
    assert float(sum(part["loss_sup"].sums for part in statistics)) == pytest.approx(by_hand.item(), abs=1e-14)
    gradients = torch.cat([parameter.grad.reshape(-1) for parameter in toy.module.parameters()])
    expected = torch.cat([grad.reshape(-1) for grad in torch.autograd.grad(by_hand, list(toy.module.parameters()))])
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-14)


def test_a_score_without_a_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = recipe(method="dapo")
    toy, state, collected = gathered(chosen)
    monkeypatch.setattr(ToyDomain, "score", torch.no_grad()(ToyDomain.score))
    with pytest.raises(ConfigError, match=r"ToyDomain.score returned log_prob without a gradient, .*torch.no_grad"):
        gradient(toy, chosen, state, collected, on_policy=False)


def test_minibatches_deal_every_group_once_a_pass() -> None:
    chosen = recipe(method="dapo", minibatches=2, updates_per_batch=3)
    toy, state, collected = gathered(chosen)
    updates = update_policy(step_of(toy, chosen, state), collected)
    assert len(updates.metrics) == 6
    assert [metrics["on_policy_share"] for metrics in updates.metrics] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_second_pass_is_off_policy_and_its_ratios_are_noted() -> None:
    chosen = recipe(method="dapo", updates_per_batch=2)
    toy, state, collected = gathered(chosen)
    updates = update_policy(step_of(toy, chosen, state), collected)
    moving = (collected.batch.advantage != 0).any(1)
    assert (updates.log_ratio[moving][collected.samples.mask[moving]] != 0).all()
    assert (updates.log_ratio[~moving] == 0).all()
    assert (updates.log_ratio[~collected.samples.mask] == 0).all()
    assert updates.metrics[1]["on_policy_fraction"] == 0.0


def test_gradients_are_clipped_by_their_global_norm() -> None:
    chosen = recipe(method="dapo", max_grad_norm=1e-3)
    toy, state, collected = gathered(chosen)
    learning_rates: list[float] = []
    state.learner.optimiser.register_step_pre_hook(
        lambda *_: learning_rates.append(
            float(torch.nn.utils.get_total_norm([p.grad for p in toy.module.parameters()]))
        )
    )
    updates = update_policy(step_of(toy, chosen, state), collected)
    assert updates.metrics[0]["grad_norm"] > 0.01
    assert learning_rates == [pytest.approx(1e-3, rel=1e-2)]


def test_a_checkpoint_of_an_earlier_version_is_refused_by_what_it_is() -> None:
    _, state, _ = gathered(recipe(method="grpo"))
    record = state.record(World(), 0)
    record["history"] = record.pop("memory")
    with pytest.raises(ValueError, match="an earlier Groupwise saved it"):
        state.restore(record, World())
