"""Records survive the trip to the disk bit for bit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from groupwise.checkpoint import load_tree, save_tree


def test_plain_values_and_tensors_return_exactly(tmp_path: Path) -> None:
    record = {
        "a": [1, 0.1, None, True, "x", b"\x00\xff"],
        "b": {"c": (1, (2.5,))},
        "nan": -math.inf,
        "t": torch.tensor([0.1, -0.0], dtype=torch.bfloat16),
    }
    save_tree(tmp_path, record)
    loaded = load_tree(tmp_path)
    assert loaded["a"] == record["a"]
    assert loaded["b"] == record["b"]
    assert loaded["nan"] == -math.inf
    assert loaded["t"].dtype == torch.bfloat16
    assert torch.equal(loaded["t"].view(torch.int16), record["t"].view(torch.int16))


def test_an_optimisers_state_returns_with_its_integer_keys(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    save_tree(tmp_path, optimiser.state_dict())
    loaded = load_tree(tmp_path)
    assert list(loaded["state"]) == [0, 1]
    assert loaded["param_groups"] == optimiser.state_dict()["param_groups"]
    assert torch.equal(loaded["state"][0]["exp_avg"], optimiser.state_dict()["state"][0]["exp_avg"])


def test_tensors_that_share_memory_and_views_are_saved_apart(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    save_tree(tmp_path, {"a": base, "b": base, "c": base.t()})
    loaded = load_tree(tmp_path)
    assert torch.equal(loaded["b"], base)
    assert torch.equal(loaded["c"], base.t())


def test_an_object_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="/a/0 is a object"):
        save_tree(tmp_path, {"a": [object()]})


def test_no_pickle_is_written(tmp_path: Path) -> None:
    save_tree(tmp_path, {"a": torch.ones(1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tensors.safetensors", "values.json"]
