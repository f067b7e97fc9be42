"""Errors name a slot as it was written: short, or below `objective`."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.loading import load_experiment


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trust.high=-1"], ": trust.high = -1: must be greater than 0"),
        (["objective.trust.high=-1"], ": objective.trust.high = -1: must be greater than 0"),
        (["objective.trust.hihg=0.1"], ": objective.trust.hihg = 0.1: unknown key"),
        (["objective.trst.high=0.1"], ': objective.trst = {"high": 0.1}: unknown key'),
        (
            ["trust.kind=gmpo", "ratio.kind=geometric"],
            ": trust.kind = 'gmpo' reads each decision's own log-ratio, and ratio.kind is 'geometric'",
        ),
        (
            ["objective.trust.kind=gmpo", "ratio.kind=geometric"],
            ": objective.trust.kind = 'gmpo' reads each decision's own log-ratio, and ratio.kind is",
        ),
        (["trust.kind=gmpo", "objective.ratio.kind=geometric"], "; write objective.ratio.kind = 'token'"),
        (["objective.entropy=-1"], ": objective.entropy comes down to -1"),
        (["entropy=-1"], ": entropy comes down to -1"),
        (["stages.grpo.set.objective.trust.high=-1"], ": stages.grpo: objective.trust.high = -1: must be"),
        (["stages.grpo.set.trust.high=-1"], ": stages.grpo: trust.high = -1: must be"),
        (
            ["controls.supervised.set.objective.trust.low=-1"],
            ": controls.supervised: objective.trust.low = -1: must be",
        ),
    ],
)
def test_a_slot_is_named_as_it_was_written(tiny: Path, overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(tiny, overrides)
    assert expected in str(caught.value)


def test_the_last_layer_that_writes_a_slot_decides(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(f'extends = "{tiny}"\n[objective.trust]\nlow = 0.1\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"long.toml with objective\.trust\.high=-1: objective\.trust\.high = -1"):
        load_experiment(path, ["objective.trust.high=-1"])
    with pytest.raises(ConfigError, match=r": trust\.high = -1"):
        load_experiment(path, ["trust.high=-1"])
