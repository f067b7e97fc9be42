"""The longer language experiments as they are shipped, cut to their first steps: data, corpus, reward and judge of each
work together.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics

SHORT = [
    "stages.warm_up.num_steps=12",
    "stages.warm_up.set.optimiser.warm_up_steps=2",
    "stages.grpo.num_steps=2",
    "domain.model.shape.hidden_size=32",
    "domain.model.shape.num_layers=2",
    "domain.data.num_train=64",
    "domain.data.num_held_out=8",
    "domain.demonstrations.num=256",
    "train.prompts_per_step=4",
    "track.console=none",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metric", "judge"),
    [("language_countdown", "solved", "keeps_the_rules"), ("language_knights", "logic", "right")],
)
def test_the_first_steps_of_a_shipped_experiment_learn(
    name: str, metric: str, judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    result = run(load_experiment(name, SHORT), tmp_path / "run", controls=False)
    rows = list(read_metrics(result.folder.metrics))
    warm_up = [float(row["loss_sup"] or 0) for row in rows if row["stage"] == "warm_up" and "loss_sup" in row]
    assert len(warm_up) == 12
    assert warm_up[-1] < 0.8 * warm_up[0], "the corpus is learned"
    trained = [row for row in rows if row["stage"] == "grpo" and "reward" in row]
    assert [row["completions/mean_length"] is not None for row in trained] == [True, True]
    assert result.summary["metric"] == f"greedy/{metric}"
    assert {f"eval/greedy/{metric}", f"eval/sampled/{judge}"} <= set(rows[-1])
    AutoModelForCausalLM.from_pretrained(result.folder.model)
    assert AutoTokenizer.from_pretrained(result.folder.model).eos_token is not None
