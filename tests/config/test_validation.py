"""Strict validation: every problem at once, with path, value, allowed names and the nearest one."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from groupwise.config import (
    Config,
    ConfigError,
    Problem,
    check_plain,
    parse_overrides,
    read_json,
    read_toml,
    validate,
)
from groupwise.config.errors import Count, Length, Parallel, PerStep, Positive, Seconds, Seed, Width

# Configuration objects are frozen, strict and closed.


class BaseClip(Config):
    low: float = 0.2
    num: int = 1


def test_nothing_is_coerced_added_or_changed():
    assert BaseClip(low=1).low == 1.0
    for wrong in ({"low": "0.1"}, {"num": 1.0}, {"num": True}, {"high": 1.0}):
        with pytest.raises(ValidationError):
            BaseClip(**wrong)
    with pytest.raises(ValidationError):
        BaseClip().low = 0.3


class ValidationClip(Config):
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


Trust = Annotated[ValidationClip | Gaussian, Field(discriminator="kind")]
Schedule = float | Annotated[Linear | Cosine, Field(discriminator="kind")]


class Train(Config):
    name: str
    num_steps: int = 5
    lr: Schedule = 1e-3
    mode: Literal["fast", "slow"] = "fast"
    flag: bool = False
    stop: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _even(self) -> "Train":
        if self.num_steps == 99:
            raise ValueError("num_steps = 99 is refused; write 98")
        if self.num_steps == 98:
            raise ValueError("train.num_steps = 98 is refused; write 97")
        return self


class Whole(Config):
    trust: Trust = ValidationClip()
    train: Train = Train(name="x")
    rewards: dict[str, Trust] = Field(default_factory=dict)
    stages: tuple[Train, ...] = ()
    extra: ValidationClip | None = None


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
        trust=Gaussian(sigma=1.0), train=Train(name="y", lr=Linear(), stop=("a",)), rewards={"r": ValidationClip()}
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


# The message of an error: one problem on a line, several below each other.


def test_one_problem_stands_behind_its_source_and_several_below_it():
    one = Problem("a.b", "is wrong")
    general_problem = Problem("", "all of it is wrong", ("x", "y"), "x")
    assert str(ConfigError(one)) == "a.b: is wrong"
    assert str(ConfigError([one], source="f.toml")) == "f.toml: a.b: is wrong"
    assert (
        str(ConfigError([one, general_problem], source="f.toml"))
        == "f.toml: 2 problems\n  a.b: is wrong\n  all of it is wrong; allowed: x, y; did you mean x?"
    )
    assert ConfigError("said").problems == (Problem("", "said"),)
    assert isinstance(ConfigError("said"), ValueError)


# A table that no part of the program can use is refused where it is read, with the key, in one line and without
# recursion.


class Numbers(Config):
    """One key of every type."""

    count: Count = 0
    positive: Positive = 1
    per_step: PerStep = 1
    length: Length = 1
    width: Width = 1
    parallel: Parallel = 1
    seed: Seed = 0
    seconds: Seconds = 1.0
    free: float = 0.0


def nested(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize("name", [name for name in Numbers.model_fields if name != "free"])
@pytest.mark.parametrize("value", [-1, 10**10**2, 2**64, 10**400, float("nan"), float("inf"), "1"])
def test_every_number_has_an_end(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^here: {name} = "):
        validate(Numbers, {name: value}, "here")


@pytest.mark.parametrize("name", ["count", "positive", "per_step", "length", "width", "parallel"])
def test_the_most_that_is_allowed_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} = 9223372036854775807: must be less than or equal to \d+"):
        validate(Numbers, {name: 2**63 - 1})


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"a": {"b": [1, 10**50]}}, r"a\.b\[1\] = a number of about 50 digits: is beyond 64 bits"),
        ({"a": 10**400}, "a number of about 400 digits: is beyond 64 bits"),
        ({"a": 10**6000}, "a number of about 6000 digits"),
        ({"a": float("nan")}, "a = nan: is not a number"),
        ({"a": "x\ud800"}, r"a = 'x\\ud800': character 2 is '\\ud800', half of a surrogate pair"),
        ({"a": {"\ud800": 1}}, r"the key '\\ud800'"),
        ({"a": "x\0"}, "holds the character NUL"),
        (nested(100_000), "deeper inside each other than 64 levels"),
    ],
)
def test_what_cannot_be_worked_with_is_named(tree: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        check_plain(tree, "a.toml")
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_what_people_write_passes() -> None:
    check_plain({"a": [1, 2.5, "é 🙂", None, True, {"b": [[]]}], "seed": 2**63 - 1, "inf": float("inf")})
    check_plain({"text": "a\0b", "number": float("nan")}, config=False)


FILES = {
    "deep.toml": ("a = " + "[" * 100_000, "too deep"),
    "tables.toml": (".".join("a" * 150) + " = 1", "deeper inside each other"),
    "header.toml": ("[" + ".".join("a" * 100_000) + "]\n", "more than 200 parts"),
    "dots.toml": (".".join("a" * 100_000) + " = 1", "more than 200 parts"),
    "integer.toml": ("seed = " + "9" * 6000, "more than 4,300 digits"),
    "long.toml": ("seed = " + "9" * 4000, "seed = a number of about 4000 digits"),
    "deep.json": ('{"a":' * 100_000, "too deep"),
    "closed.json": (json.dumps(nested(300)), "deeper inside each other"),
    "integer.json": ('{"seed": ' + "9" * 6000 + "}", "more than 4,300 digits"),
    "surrogate.json": ('{"a": "\\ud800"}', "half of a surrogate pair"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_would_break_its_reader_is_named(name: str, tmp_path: Path) -> None:
    content, says = FILES[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        (read_toml if name.endswith(".toml") else read_json)(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert len(str(caught.value)) < 800


def test_a_pipe_a_device_and_a_file_with_a_hole_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    (tmp_path / "hole.toml").touch()
    os.truncate(tmp_path / "hole.toml", 2**40)
    for name, says in (
        ("pipe", "is no file"),
        ("device", "is no file"),
        ("hole", "more than the 256 MiB that are read"),
    ):
        with pytest.raises(ConfigError, match=says):
            read_toml(tmp_path / f"{name}.toml")


@pytest.mark.parametrize(
    "item",
    [
        "a=" + "[" * 100_000,
        "a=" + "9" * 6000,
        ".".join("a" * 60_000) + "=1",
        "a=1" + "0" * 400,
        "name=\udcff",
        "a=" + '{"b"=' * 90,
    ],
)
def test_an_item_of_the_command_line_is_refused_in_a_line(item: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Numbers, parse_overrides([item]))
    assert len(str(caught.value)) < 800
