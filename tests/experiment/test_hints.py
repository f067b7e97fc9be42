"""An unknown key that another system has is answered with what is written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.loading import load_experiment


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("train.beta=0.1", "train.beta=0.1 is written divergence.kind=exact divergence.beta=0.1 here"),
        ("train.epsilon=0.3", "train.epsilon=0.3 is written trust.kind=clip trust.low=0.3 trust.high=0.3 here"),
        (
            "train.scale_rewards=true",
            "train.scale_rewards=true is written advantage.kind=per_prompt advantage.baseline=group here",
        ),
        ("train.scale_rewards=false", "train.scale_rewards=false is written advantage.kind=centred here"),
        ("train.use_reference_model=true", "is written reference.kind=periodic here"),
        ("train.use_reference_model=false", "is written reference.kind=absent divergence.kind=none here"),
        ("train.reference_model_mixup_alpha=0.75", "is written reference.kind=periodic reference.alpha=0.25 here"),
        ("train.reference_update_freq=3", "is written reference.kind=periodic reference.sync_steps=3 here"),
        ("use_amic=true", "source 000's use_amic=true is written ratio.kind=arithmetic here"),
    ],
)
def test_a_key_of_a_source_is_no_alias_and_is_answered(tiny: Path, override: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(tiny, [override])
    assert "unknown key; source 00" in str(caught.value)
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


DIVERGENCE = """
from typing import ClassVar
from groupwise.objective.divergence import Penalty

class Mine(Penalty):
    against: ClassVar[str] = "reference"
    strength: float = 0.1
    def __call__(self, log_prob, decisions): return 0.0 * log_prob
"""


def test_a_setting_of_a_shipped_kind_beside_a_class_of_the_user_is_told_its_place(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pieces_of_hints.py").write_text(DIVERGENCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = ["divergence.kind=callable", "divergence.path=pieces_of_hints:Mine"]
    for key, told in [("beta", "; write divergence.settings.beta"), ("alpha", ": beta, place, strength")]:
        with pytest.raises(ConfigError) as caught:
            load_experiment(tiny, [*mine, f"divergence.{key}=0.1"])
        place = (
            f"divergence.{key} = 0.1: unknown key; the settings of pieces_of_hints:Mine stand in divergence.settings"
        )
        assert str(caught.value).endswith(place + told)
        assert "\n" not in str(caught.value)
    assert load_experiment(tiny, [*mine, "divergence.settings.beta=0.1"]).objective.divergence.beta.value == 0.1


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("trust.path=mine:Gate", "trust"),
        ("trust.settings.low=1", "trust"),
        ("divergence.path=mine:Own", "divergence"),
        ("optimiser.learning_rate.path=mine:Rate", "optimiser.learning_rate"),
        ('entropy={kind="linear",start=1.0,end=0.0,num_steps=2,path="mine:Rate"}', "entropy"),
        ('reference={kind="frozen",path="mine:Rule"}', "reference"),
        ("domain.path=mine:Domain", "domain"),
        ("domain.rewards.correct.path=mine:reward", "domain.rewards.correct"),
    ],
)
def test_a_path_beside_a_shipped_kind_is_told_the_kind_to_write(tiny: Path, override: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(tiny, [override])
    assert f'unknown key; it belongs to code of your own; write {place}.kind = "callable" beside it' in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_a_path_without_any_kind_is_told_the_kind_to_write(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r'reference.kind: is missing; .* \(reference.kind = "callable" for a path'):
        load_experiment(tiny, ["reference.path=mine:Rule"])
