"""Stopping a gradient, and holding the stopped values still for finite differences."""

from __future__ import annotations

import torch

from groupwise.objective.decisions import recording, replaying, stop_gradient


def test_stopped_value_has_no_gradient() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    (x * stop_gradient(x)).backward()
    assert x.grad is not None
    assert float(x.grad) == 3.0


def test_replay_keeps_the_recorded_values() -> None:
    with recording() as stopped:
        stop_gradient(torch.tensor(3.0))
        stop_gradient(torch.tensor(4.0))
    with replaying(stopped):
        assert float(stop_gradient(torch.tensor(30.0))) == 3.0
        assert float(stop_gradient(torch.tensor(40.0))) == 4.0
    assert float(stop_gradient(torch.tensor(30.0))) == 30.0
