"""A kind's name in place of its table."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from groupwise.config import Config, ConfigError, json_schema, merge, validate
from groupwise.config.shorthand import kind_alone


class Hard(Config):
    kind: Literal["hard"] = "hard"


class Soft(Config):
    kind: Literal["soft", "gentle"] = "soft"
    weight: float = 1.0


class Reward(Config):
    mode: Annotated[Annotated[Hard | Soft, Field(discriminator="kind")], kind_alone(Hard | Soft)] = Hard()


def test_a_name_stands_for_the_defaults_and_a_table_for_itself() -> None:
    assert validate(Reward, {"mode": "gentle"}).mode == Soft(kind="gentle")
    assert validate(Reward, {"mode": {"kind": "soft", "weight": 0.5}}).mode == Soft(weight=0.5)
    assert validate(Reward, {"mode": {"kind": "hard"}}).mode == Hard()


def test_a_name_over_a_table_replaces_it_and_a_written_configuration_reads_again() -> None:
    over = merge({"mode": {"kind": "soft", "weight": 0.5}}, {"mode": "hard"})
    reward = validate(Reward, over)
    assert reward.mode == Hard()
    assert validate(Reward, reward.model_dump(mode="json")) == reward


def test_other_names_and_keys_are_named() -> None:
    with pytest.raises(ConfigError, match=r"mode: 'sofft' is no kind; allowed: hard, soft, gentle; did you mean soft\?"):
        validate(Reward, {"mode": "sofft"})
    with pytest.raises(ConfigError, match=r"mode.wieght.*weight"):
        validate(Reward, {"mode": {"kind": "soft", "wieght": 1.0}})


def test_editors_are_told_of_both() -> None:
    assert "string" in str(json_schema(Reward)["properties"]["mode"])
