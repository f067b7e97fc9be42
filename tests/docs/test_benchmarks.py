"""The benchmarks measure what they say: the default's own model and step, and models that end completions as often as asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.experiment import load_experiment

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_default_size_is_the_default_experiments() -> None:
    from step_task import SIZES

    size, experiment = SIZES["default"], load_experiment("language")
    shape = experiment.domain.model.shape
    assert (size.hidden, size.layers, size.heads, size.kv_heads, size.intermediate) == (
        shape.hidden_size,
        shape.num_layers,
        shape.num_heads,
        shape.num_key_value_heads,
        shape.intermediate_size,
    )
    assert (size.num_prompts, size.group_size) == (experiment.train.prompts_per_step, experiment.train.group_size)
    assert size.completion_tokens == experiment.domain.sampling.max_new_tokens


@pytest.mark.parametrize(("lengths", "chance"), [("fixed", 0.0), ("spread", 0.2)])
def test_completions_end_as_often_as_asked(tmp_path: Path, lengths: str, chance: float) -> None:
    import torch
    from step_task import SIZES, build
    from transformers import AutoModelForCausalLM

    made = build(SIZES["default"], lengths, 4, tmp_path)
    assert made["end_chance"] == pytest.approx(chance, abs=1e-6)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        probability = model(torch.randint(2, 32, (16, 10))).logits.softmax(-1)
    # Nearly the same after every text, so lengths are geometric; the pad token is never drawn.
    assert (probability[..., 1] - chance).abs().max() < 0.05
    assert probability[..., 0].max() < 1e-6
    assert len((tmp_path / "prompts.jsonl").read_text().splitlines()) == 4


def test_generalised_advantages_by_hand() -> None:
    sys.modules.pop("actor_critic_memory", None)
    import torch
    from actor_critic_memory import advantages

    found, returns = advantages(torch.tensor([[0.5, 0.25]]), torch.tensor([1.0]), discount=1.0, smoothing=0.5)
    # Last: 1 - 0.25. First: (0.25 - 0.5) + 0.5 * 0.75.
    assert found.tolist() == [[0.125, 0.75]]
    assert returns.tolist() == [[0.625, 1.0]]
