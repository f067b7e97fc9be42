"""An empty table over named entries means none of them; over fixed keys it says nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from groupwise.config import Config, without_emptied


class Plain(Config):
    kind: Literal["plain"] = "plain"
    low: float = 0.2


class Chosen(Config):
    kind: Literal["chosen"] = "chosen"
    arguments: dict[str, Any] = Field(default_factory=dict)


class Run(Config):
    loss: Annotated[Plain | Chosen, Field(discriminator="kind")] = Plain()
    weights: dict[str, float] = Field(default_factory=dict)
    rewards: dict[str, Plain] = Field(default_factory=dict)


BASE = {
    "loss": {"kind": "chosen", "arguments": {"a": 1}},
    "weights": {"x": 1.0},
    "rewards": {"r": {"low": 0.1}, "s": {}},
}


def test_named_entries_go() -> None:
    assert without_emptied(Run, BASE, {"weights": {}, "rewards": {}}) == {**BASE, "weights": {}, "rewards": {}}
    assert without_emptied(Run, BASE, {"loss": {"arguments": {}}})["loss"] == {"kind": "chosen", "arguments": {}}


def test_everything_else_stays() -> None:
    assert without_emptied(Run, BASE, {"loss": {}, "rewards": {"r": {}}, "weights": {"y": 2.0}, "unknown": {}}) == BASE
    assert without_emptied(Run, {"weights": 3}, {"weights": {}}) == {"weights": 3}
