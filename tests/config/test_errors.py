"""The message of an error: one problem on a line, several below each other."""

from __future__ import annotations

from groupwise.config import ConfigError, Problem, nearest


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


def test_the_nearest_name_is_near():
    assert nearest("kl", ["k1", "clip"]) == "k1"
    assert nearest("member", ["token_mean", "member_mean"]) == "member_mean"
    assert nearest(3, ["clip"]) is None
