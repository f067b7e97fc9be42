"""The reference takes the policy's place exactly, gives it back always, and follows it by its rule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupwise.learner.local import LocalLearner
from groupwise.reference import (
    EmaReference,
    FrozenReference,
    QualityGateReference,
    ReferencePolicy,
)


def linear(value: float) -> nn.Linear:
    module = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(module.weight, value)
    return module


def reference_weight(reference: ReferencePolicy, module: nn.Linear) -> float:
    with reference.active():
        return module.weight[0, 0].item()


def test_frozen_keeps_the_start_while_the_policy_moves() -> None:
    module = linear(1.0)
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    module(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimiser.step()
    assert module.weight.tolist() == [[0.5, 0.5]]
    with reference.active():
        assert module(torch.ones(1, 2, dtype=torch.float64)).item() == 2.0
        assert not torch.is_grad_enabled()
    assert module.weight.tolist() == [[0.5, 0.5]]


def test_the_policy_returns_after_an_exception_and_trains_on() -> None:
    module = linear(1.0)
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    nn.init.constant_(module.weight, 3.0)
    with pytest.raises(KeyError), reference.active():
        raise KeyError
    assert module.weight.tolist() == [[3.0, 3.0]]
    assert module.weight.is_leaf
    module(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    assert module.weight.grad is not None


def test_the_swap_moves_storages_and_copies_nothing() -> None:
    module = linear(1.0)
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    live = module.weight.data_ptr()
    with reference.active():
        assert module.weight.data_ptr() != live
    assert module.weight.data_ptr() == live


def test_the_quality_gate_refuses_a_policy_that_fell() -> None:
    module = linear(0.0)
    reference = ReferencePolicy(QualityGateReference(sync_steps=1, alpha=1.0, margin=0.05), LocalLearner(module))
    nn.init.constant_(module.weight, 1.0)
    assert reference.observe(1, 0.80) == "mixed"
    nn.init.constant_(module.weight, 2.0)
    assert reference.observe(2, 0.74) == "refused"
    assert reference_weight(reference, module) == 1.0
    assert reference.observe(3, 0.76) == "mixed"
    assert reference_weight(reference, module) == 2.0


def test_tied_weights_and_running_statistics_are_swapped_once() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    module[2].weight = module[0].weight
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    module(torch.randn(8, 2))
    moved = module[1].running_mean.clone()
    nn.init.constant_(module[0].weight, 5.0)
    with reference.active():
        assert module[1].running_mean.tolist() == [0.0, 0.0]
        assert module[2].weight is module[0].weight
        assert (module[0].weight != 5.0).all()
    assert torch.equal(module[1].running_mean, moved)
    assert (module[2].weight == 5.0).all()


def test_state_returns_bit_for_bit() -> None:
    module = linear(0.0)
    reference = ReferencePolicy(EmaReference(decay=0.9), LocalLearner(module))
    nn.init.constant_(module.weight, 1.0)
    reference.observe(1, 0.5)
    other = ReferencePolicy(EmaReference(decay=0.9), LocalLearner(module))
    other.restore(reference.state())
    assert reference_weight(other, module) == reference_weight(reference, module)
    assert other.score == 0.5


def adapted() -> tuple[nn.Module, nn.Module]:
    peft = pytest.importorskip("peft")
    base = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    plain.load_state_dict(base.state_dict())
    module = peft.get_peft_model(base, peft.LoraConfig(target_modules=["0"], r=2))
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.constant_(parameter, 0.5)
    return module, plain


def test_with_lora_the_frozen_reference_may_be_the_adapter_switched_off() -> None:
    module, plain = adapted()
    reference = ReferencePolicy(FrozenReference(adapter="off"), LocalLearner(module))
    assert reference.state()["weights"] == {}
    x = torch.randn(3, 4)
    before, flags = module(x), [parameter.requires_grad for parameter in module.parameters()]
    with reference.active():
        assert torch.equal(module(x), plain(x))
    assert torch.equal(module(x), before)
    assert not torch.equal(before, plain(x))
    assert [parameter.requires_grad for parameter in module.parameters()] == flags


def test_with_lora_the_reference_is_a_copy_of_the_adapter_where_it_began() -> None:
    module, _ = adapted()
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    assert all("lora" in name for name in reference.state()["weights"])
    x = torch.randn(3, 4)
    before = module(x)
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.constant_(parameter, 0.0)
    with reference.active():
        assert torch.equal(module(x), before)


def test_ema_follows_every_step() -> None:
    module = linear(0.0)
    reference = ReferencePolicy(EmaReference(decay=0.9), LocalLearner(module))
    nn.init.constant_(module.weight, 1.0)
    for step in (1, 2, 3):
        reference.observe(step, None)
    assert reference_weight(reference, module) == pytest.approx(1 - 0.9**3, abs=1e-15)
