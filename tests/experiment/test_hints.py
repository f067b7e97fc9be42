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
