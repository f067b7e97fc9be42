from __future__ import annotations

from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.source_names import in_our_names

DEFAULTS = [
    "train.group_size=4",
    "train.beta=0.04",
    "train.epsilon=0.2",
    "train.scale_rewards=true",
    "train.use_reference_model=true",
    "train.reference_model_mixup_alpha=0.5",
    "train.reference_update_freq=10",
]


def test_the_source_s_own_keys_with_its_defaults_are_its_experiment() -> None:
    assert load_experiment("source_002", DEFAULTS) == load_experiment("source_002")


def test_what_is_laid_on_later_wins_in_either_name() -> None:
    changed = load_experiment(
        "source_002",
        [
            "train.beta=0.1",
            "train.epsilon=0.3",
            "train.reference_model_mixup_alpha=0.75",
            "train.reference_update_freq=3",
        ],
    )
    objective, reference = changed.objective, changed.reference
    assert (objective.divergence.beta.value, objective.trust.low, objective.trust.high) == (0.1, 0.3, 0.3)
    assert reference is not None
    assert (reference.alpha, reference.sync_steps) == (0.25, 3)
    # The shipped file says the mixing in the source's name, a person in ours.
    ours = load_experiment("source_002", ["reference.alpha=0.3", "reference.sync_steps=7"]).reference
    assert (ours.alpha, ours.sync_steps) == (0.3, 7)


def test_a_slot_that_is_written_below_objective_is_continued_there() -> None:
    changed = load_experiment(
        "source_002", ["train.beta=0.1", "objective.divergence.kind=k3", "train.epsilon=0.3", "objective.trust.low=0.3"]
    ).objective
    assert (changed.divergence.kind, changed.divergence.beta.value, changed.trust.low, changed.trust.high) == (
        "k3",
        0.1,
        0.3,
        0.3,
    )


def test_switched_off() -> None:
    experiment = load_experiment("source_002", ["train.use_reference_model=false", "train.scale_rewards=false"])
    assert (experiment.reference.kind, experiment.objective.divergence.kind, experiment.objective.advantage.kind) == (
        "absent",
        "none",
        "centred",
    )


def test_each_is_said(caplog: pytest.LogCaptureFixture) -> None:
    in_our_names({"train": {"epsilon": 0.1, "use_reference_model": False}})
    assert "train.epsilon = 0.1 is read as trust.low = 0.1, trust.high = 0.1" in caplog.text
    assert "train.use_reference_model = false is read as reference.kind = absent, divergence.kind = none" in caplog.text


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"train": {"beta": 0.1}, "divergence": {"beta": 0.2}},
            r"train.beta = 0.1.* is divergence.beta here, which is set to 0.2; keep divergence.beta",
        ),
        ({"train": {"epsilon": 0.1}, "objective": {"trust": {"low": 0.2}}}, "is trust.low here"),
        ({"train": {"scale_rewards": "std"}}, "must be true or false"),
        ({"train": {"epsilon": True}}, "must be a number"),
        (
            {"train": {"reference_model_mixup_alpha": 0.5}, "reference": {"alpha": 0.5}},
            "one setting in two orientations",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        in_our_names(tree)
