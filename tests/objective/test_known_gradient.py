"""A value with the gradient it is said to have."""

from __future__ import annotations

import torch

from groupwise.objective.decisions import known_gradient


def test_value_and_gradient_are_those_given() -> None:
    source = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    value, slope = torch.tensor([5.0, 6.0, 7.0]).double(), torch.tensor([0.0, -1.0, 2.0]).double()
    value_with_gradient = known_gradient(source, value, slope)
    assert value_with_gradient.tolist() == [5.0, 6.0, 7.0]
    (value_with_gradient * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert source.grad is not None
    assert source.grad.tolist() == [0.0, -10.0, 200.0]


def test_without_a_graph_it_is_the_value() -> None:
    assert not known_gradient(torch.ones(2), torch.zeros(2), torch.ones(2)).requires_grad
