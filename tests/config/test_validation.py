"""Strict validation: every problem at once, with path, value, allowed names and the nearest one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, validate


class Clip(Config):
    kind: Literal["clip"] = "clip"
    low: float = 0.2


class Gaussian(Config):
    kind: Literal["gaussian"] = "gaussian"
    sigma: float = Field(0.2, gt=0)


class Linear(Config):
    kind: Literal["linear"] = "linear"
    start: float = 0.0


class Cosine(Config):
    kind: Literal["cosine"] = "cosine"
    period: int = 10


Trust = Annotated[Clip | Gaussian, Field(discriminator="kind")]
Schedule = float | Annotated[Linear | Cosine, Field(discriminator="kind")]


class Train(Config):
    name: str
    num_steps: int = 5
    lr: Schedule = 1e-3
    mode: Literal["fast", "slow"] = "fast"
    flag: bool = False
    stop: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _even(self) -> Train:
        if self.num_steps == 99:
            raise ValueError("num_steps = 99 is refused; write 98")
        if self.num_steps == 98:
            raise ValueError("train.num_steps = 98 is refused; write 97")
        return self


class Whole(Config):
    trust: Trust = Clip()
    train: Train = Train(name="x")
    rewards: dict[str, Trust] = Field(default_factory=dict)
    stages: tuple[Train, ...] = ()
    extra: Clip | None = None


def problems(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(Whole, tree, source="here.toml")
    assert str(caught.value).startswith("here.toml: ")
    return [str(problem) for problem in caught.value.problems]


def test_a_valid_table_becomes_the_object():
    tree = {
        "trust": {"kind": "gaussian", "sigma": 1},
        "train": {"name": "y", "lr": {"kind": "linear"}, "stop": ["a"]},
        "rewards": {"r": {"kind": "clip"}},
    }
    assert validate(Whole, tree) == Whole(
        trust=Gaussian(sigma=1.0), train=Train(name="y", lr=Linear(), stop=("a",)), rewards={"r": Clip()}
    )


def test_a_saved_infinity_is_read_back():
    config = Whole(trust=Gaussian(sigma=float("inf")), train=Train(name="y", lr=Cosine()))
    assert Whole.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            {"trust": {"kind": "gausian"}},
            'trust.kind = "gausian": unknown kind; allowed: clip, gaussian; did you mean gaussian?',
        ),
        ({"trust": {"sigma": 1}}, "trust.sigma = 1: unknown key; allowed: kind, low"),
        ({"rewards": {"r": {"low": 1}}}, "rewards.r.kind: is missing; say which kind; allowed: clip, gaussian"),
        (
            {"trust": {"kind": "gaussian", "sigm": 1}},
            "trust.sigm = 1: unknown key; allowed: kind, sigma; did you mean sigma?",
        ),
        (
            {"mode": "slow"},
            'mode = "slow": unknown key; allowed: trust, train, rewards, stages, extra; did you mean train.mode?',
        ),
        (
            {"sigma": 2, "trust": {"kind": "gaussian"}},
            "sigma = 2: unknown key; allowed: trust, train, rewards, stages, extra; did you mean trust.sigma?",
        ),
        (
            {"train": {"name": "x", "extra": {}}},
            "train.extra = {}: unknown key; allowed: name, num_steps, lr, mode, flag, stop; did you mean extra?",
        ),
        ({"tran": {}}, "tran = {}: unknown key; allowed: trust, train, rewards, stages, extra; did you mean train?"),
        ({"train": {}}, "train.name: is missing; it has no default, so write it"),
        ({"train": {"name": "x", "num_steps": "5"}}, 'train.num_steps = "5": must be a valid integer'),
        ({"train": {"name": "x", "num_steps": 5.5}}, "train.num_steps = 5.5: must be a valid integer"),
        ({"train": {"name": "x", "flag": 1}}, "train.flag = 1: must be a valid boolean, true or false"),
        ({"train": {"name": "x", "stop": "a"}}, 'train.stop = "a": must be a valid list'),
        (
            {"train": {"name": "x", "mode": "slo"}},
            'train.mode = "slo": is not one of the allowed values; allowed: fast, slow; did you mean slow?',
        ),
        ({"train": {"name": "x", "lr": "abc"}}, 'train.lr = "abc": must be a valid number, or must be a table'),
        (
            {"train": {"name": "x", "lr": {"kind": "linar"}}},
            'train.lr.kind = "linar": unknown kind; allowed: linear, cosine; did you mean linear?',
        ),
        (
            {"train": {"name": "x", "lr": {"kind": "linear", "strt": 1}}},
            "train.lr.strt = 1: unknown key; allowed: kind, start; did you mean start?",
        ),
        ({"train": {"name": "x", "lr": {}}}, "train.lr.kind: is missing; say which kind; allowed: linear, cosine"),
        ({"train": {"name": "x", "num_steps": 99}}, "train: num_steps = 99 is refused; write 98"),
        ({"train": {"name": "x", "num_steps": 98}}, "train.num_steps = 98 is refused; write 97"),
        ({"trust": {"kind": "gaussian", "sigma": -1}}, "trust.sigma = -1: must be greater than 0"),
        (
            {"rewards": {"float": {"kind": "clip", "lo": 1}}},
            "rewards.float.lo = 1: unknown key; allowed: kind, low; did you mean low?",
        ),
        ({"stages": [{"name": "a"}, {"nam": "b", "name": "c"}]}, None),
        ({"extra": 3}, "extra = 3: must be a table"),
        ({"extra": {"lo": 3}}, "extra.lo = 3: unknown key; allowed: kind, low; did you mean low?"),
    ],
)
def test_one_problem(tree: dict[str, Any], expected: str | None):
    expected = (
        expected
        or 'stages[1].nam = "b": unknown key; allowed: name, num_steps, lr, mode, flag, stop; did you mean name?'
    )
    assert problems(tree) == [expected]


def test_all_problems_at_once():
    messages = problems({"trust": {"kind": "clp"}, "train": {"name": 3, "lr": "x"}, "seed": 1})
    assert [text.split(":")[0] for text in messages] == [
        "train.name = 3",
        'train.lr = "x"',
        'trust.kind = "clp"',
        "seed = 1",
    ]
