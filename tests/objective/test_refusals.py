"""Contradictions and settings without effect are errors that name the key, the reason and the fix; doubtful
ones warn.
"""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.objective.objective import warnings


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"ratio.kind": "arithmetic", "credit.temporal_decay.gamma": 0.9},
            ["credit (temporal_decay)", "ratio.gradient = 'sequence'", "cancels", "'token'"],
        ),
        (
            {"ratio.kind": "geometric", "credit.gradient_adaptive.temperature": 1.0},
            ["gradient_adaptive", "geometric", "ratio.gradient = 'token'"],
        ),
        ({"ratio.kind": "product", "credit.log_decay.a": 1.0}, ["log_decay", "product", "ratio.gradient = 'token'"]),
        (
            {"trust.kind": "unbounded", "trust.form": "log_prob", "smoothing.kind": "ema"},
            ["smoothing.kind = 'ema'", "ineffective", "trust.form = 'ratio'"],
        ),
        (
            {"trust.kind": "gmpo", "smoothing.kind": "ema"},
            ["trust.kind = 'gmpo'", "own log-ratio", "smoothing.kind = 'ema'", "'identity'"],
        ),
        (
            {"trust.kind": "gmpo", "ratio.kind": "geometric"},
            ["trust.kind = 'gmpo'", "ratio.kind is 'geometric'", "write ratio.kind = 'token'"],
        ),
        (
            {"trust.kind": "gmpo", "credit.temporal_decay.gamma": 0.9},
            ["credit is ineffective", "'gmpo'", "leave the credit out"],
        ),
        (
            {"trust.kind": "dppo", "smoothing.kind": "ema"},
            ["trust.kind = 'dppo'", "own probability", "smoothing.kind = 'ema'", "'identity'"],
        ),
        (
            {"trust.kind": "dppo", "ratio.kind": "product"},
            ["trust.kind = 'dppo'", "ratio.kind is 'product'", "write ratio.kind = 'token'"],
        ),
        (
            {"trust.kind": "dppo", "correction.kind": "truncate"},
            ["sampler's own probabilities", "correction.kind = 'truncate'", "twice", "'none'"],
        ),
        (
            {"ratio.kind": "transition", "smoothing.kind": "ema"},
            ["smoothing.kind = 'ema'", "ineffective", "'transition'", "'identity'"],
        ),
        ({"trust.kind": "clip_cov", "trust.lower": 6.0}, ["lower (6.0)", "below upper (5.0)"]),
        ({"trust.kind": "vespo", "trust.k_pos": -1.0}, ["trust", "k_pos", "-1"]),
        ({"compat": "verl_rl", "credit.inverse_step.raw": True}, ["verl_rl", "credit.inverse_step"]),
        (
            {"divergence.kind": "k3", "divergence.place": "reward"},
            ["divergence.place = 'reward'", "divergence.kind = 'k1'"],
        ),
        (
            {"divergence.kind": "k1", "divergence.place": "reward", "divergence.against": "behaviour"},
            ["divergence.against", "ineffective", "'reference'"],
        ),
        (
            {"advantage.kind": "mean_scaled", "divergence.kind": "k1", "divergence.place": "reward"},
            ["advantage.kind = 'mean_scaled'", "no negative reward", "divergence.place = 'loss'"],
        ),
        (
            {"divergence.kind": "exact", "divergence.against": "behaviour"},
            ["divergence.kind = 'exact'", "divergence.against = 'reference'"],
        ),
        ({"divergence.kind": "k3", "divergence.beta": -0.1}, ["divergence.beta comes down to -0.1", "from 0 up"]),
        (
            {"divergence.kind": "k3", "divergence.beta": {"kind": "linear", "start": 0.1, "end": -0.1, "num_steps": 5}},
            ["divergence.beta comes down to -0.1"],
        ),
        ({"entropy": -0.5}, ["entropy comes down to -0.5", "from 0 up"]),
        ({"auxiliary.supervised": -1.0}, ["auxiliary.supervised comes down to -1"]),
        (
            {"trust.kind": "unbounded", "trust.form": "log_prob", "ratio.kind": "geometric"},
            ["ratio.kind = 'geometric'", "ineffective", "ratio.kind = 'token'"],
        ),
        ({"trust.sigma": 0.2}, ["trust.sigma = 0.2", "unknown key", "low"]),
        ({"ratio.gradient": "token"}, ["gradient"]),
        ({"smoothing.kind": "ema", "smoothing.beta": 1.5}, ["smoothing", "beta", "1.5"]),
        ({"trust.kind": "dual_clip", "trust.bound": 0.5}, ["trust", "bound", "0.5"]),
        ({"trust.kind": "gausian"}, ["trust", "gausian", "gaussian"]),
        ({"advantage.kind": "z_score", "advantage.ddof": 2}, ["advantage", "ddof", "2"]),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_refused_when_the_configuration_is_read(keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        Objective.preset("bnpo", **keys)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"ratio.kind": "arithmetic", "ratio.gradient": "token", "credit.temporal_decay.gamma": 0.9},
        {"ratio.kind": "geometric", "trust.kind": "cispo", "credit.temporal_decay.gamma": 0.9},
        {"ratio.kind": "product", "trust.kind": "unbounded", "trust.form": "log_prob", "credit.log_decay.a": 1.0},
        {"smoothing.kind": "ema", "ratio.kind": "geometric"},
        {"ratio.kind": "product", "trust.kind": "topr", "credit.temporal_decay.gamma": 0.9},
        {"ratio.kind": "product", "trust.kind": "vespo", "credit.log_decay.a": 1.0},
        {"trust.kind": "dppo", "credit.temporal_decay.gamma": 0.9},
        {"ratio.kind": "transition", "credit.inverse_step.raw": False},
        {"divergence.kind": "k1", "divergence.place": "reward"},
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_sound_neighbours_are_taken(keys: dict[str, Any]) -> None:
    assert Objective.preset("bnpo", **keys).name == "bnpo+edited"


@pytest.mark.parametrize(
    ("keys", "updates", "chosen", "word"),
    [
        ({}, 1, {"objective.trust.low"}, "the ratio is always 1"),
        ({"advantage.kind": "rank"}, 4, set(), "rank"),
        ({"divergence.kind": "k1"}, 4, set(), "mean gradient on-policy is exactly 0"),
        ({"divergence.kind": "k1", "divergence.against": "behaviour"}, 4, set(), "against the behaviour policy"),
        ({"advantage.kind": "running_std", "advantage.baseline": "running"}, 4, set(), "difficulty of its prompt"),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_doubtful_settings_warn(keys: dict[str, Any], updates: int, chosen: set[str], word: str) -> None:
    sentences = list(warnings(Objective.preset("bnpo", **keys), updates, frozenset(chosen)))
    assert len(sentences) == 1
    assert word in sentences[0]


def test_a_plain_method_warns_of_nothing() -> None:
    assert list(warnings(Objective.preset("bnpo"), 1)) == []
    assert list(warnings(Objective.preset("bnpo"), 4, frozenset({"objective.trust.low"}))) == []
