"""A selection domain that is made in a blink: few queries, an untrained task model, a narrow policy in fp64."""

from __future__ import annotations

from typing import Any

from groupwise.config import merge, validate
from groupwise.streams import Streams
from groupwise_selection.config import SelectionConfig
from groupwise_selection.domain import SelectionDomain

TABLE: dict[str, Any] = {
    "kind": "selection",
    "model": {"kind": "pointer", "width": 8, "num_heads": 2, "dtype": "float64"},
    "source": {
        "kind": "digit_rules",
        "num_rules": 26,
        "num_train": 6,
        "num_validation": 2,
        "num_held_out": 4,
        "pool_size": 4,
        "bank_size": 8,
    },
    "task_model": {"kind": "digit_rules", "width": 8, "num_layers": 1, "num_heads": 2, "num_steps": 0, "cache": False},
    "shots": 2,
    "rewards": {"vqa": {"kind": "callable", "path": "tests.selection.tiny:graded"}},
    "evaluation": {"validation": False, "tables": False},
}


def graded(accuracy: list[float], expected: list[float], **columns: Any) -> list[float]:
    """A reward with many levels, so that hardly any group is flat."""
    return [a + e for a, e in zip(accuracy, expected, strict=True)]


def domain_of(**keys: Any) -> SelectionDomain:
    """The domain with some keys changed; `rewards` are replaced whole."""
    tree = merge(TABLE, {name: value for name, value in keys.items() if name != "rewards"})
    if "rewards" in keys:
        tree["rewards"] = keys["rewards"]
    return SelectionDomain(validate(SelectionConfig, tree), streams=Streams(0))
