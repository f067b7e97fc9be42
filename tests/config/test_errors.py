"""The message of an error: one problem on a line, several below each other."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError, Problem, keys_under, nearest


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


def test_keys_stand_under_the_place_of_their_configuration() -> None:
    with pytest.raises(ConfigError, match=r"^domain\.model\.path = 'a': no such folder$"), keys_under("domain.model"):
        raise ConfigError("path = 'a': no such folder")
    # A sentence that names no key has no place, and an error of another kind is not one of a configuration.
    with pytest.raises(ConfigError, match=r"^the model gives NaN$"), keys_under("domain.model"):
        raise ConfigError("the model gives NaN")
    with pytest.raises(ZeroDivisionError), keys_under("domain.model"):
        raise ZeroDivisionError
