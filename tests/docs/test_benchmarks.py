"""The benchmarks measure what they say: the default's own model and step, and models that end completions as often as
asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
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


def test_the_objectives_benchmark_runs_every_preset_and_overlay() -> None:
    from groupwise.objective.preset import method_names, overlay_names
    from objective import Batch

    batch = Batch(16, 8)
    for name in [*method_names(), *(f"dapo+{overlay}" for overlay in overlay_names())]:
        loss, gradient = batch.preset(name, read=True)()
        assert bool(loss.isfinite()), name
        assert bool(gradient.isfinite().all()), name


def test_generalised_advantages_by_hand() -> None:
    sys.modules.pop("actor_critic_memory", None)
    import torch
    from actor_critic_memory import advantages

    found, returns = advantages(torch.tensor([[0.5, 0.25]]), torch.tensor([1.0]), discount=1.0, smoothing=0.5)
    # Last: 1 - 0.25. First: (0.25 - 0.5) + 0.5 * 0.75.
    assert found.tolist() == [[0.125, 0.75]]
    assert returns.tolist() == [[0.625, 1.0]]


FAST, LONGER = ("language", "restoration", "qwen_lora"), ("diffusion", "selection", "qwen_full", "qwen_autocast")


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)])
def test_a_part_of_make_gpu_runs_on_a_cpu(name: str, tmp_path: Path) -> None:
    import gpu_part

    result = gpu_part.main([name, str(tmp_path), "cpu", "--tiny"])
    assert result["ok"], result
    assert result["tokens_per_second"]["sampling"] > 0
    assert result["seconds_by_part"]["update"] > 0
    assert json.loads((tmp_path / f"{name}.json").read_text()) == result
    if name.startswith("qwen"):
        assert any("foretold for H200" in note for note in result["notes"])
        assert result["tokens_per_second"]["scoring"] > 0


def test_qwen_has_the_shape_of_its_name() -> None:
    import gpu_part

    from groupwise.estimate.shape import shape_of

    # 494,032,768 in Qwen2.5-0.5B's model card; the estimate leaves out what no product reads, biases and norms.
    assert shape_of(
        {"model_type": "qwen2", "tie_word_embeddings": True, **gpu_part.qwen_shape(tiny=False)}
    ).parameters == pytest.approx(494_032_768, rel=1e-3)


def test_a_part_that_breaks_is_a_row_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu

    ends = {
        "language": "import sys; sys.exit('no module named nothing')",
        "diffusion": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "restoration": "import time; time.sleep(60)",
        "selection": (
            "import sys; open(sys.argv[2] + '/selection.json', 'w').write('{\"ok\": true, \"tokens_per_second\":"
            ' {"update": 12.0}, "peak_mib": 3}\')'
        ),
    }
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gpu_part.py").write_text(f"import sys\nexec({ends!r}[sys.argv[1]])\n")
    shutil.copy(BENCHMARKS.parent / "pyproject.toml", tmp_path)
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setitem(gpu.SECONDS, "restoration", 1)
    status = gpu.main(
        ["--device", "cpu", "--out", str(tmp_path / "out"), *(word for name in ends for word in ("--only", name))]
    )
    told = [line for line in capsys.readouterr().out.splitlines() if line.split(" ")[0] in ends]
    assert status == 1
    assert "BROKE" in told[0]
    assert told[0].endswith("ended with status 1: no module named nothing")
    assert "ended by signal 11" in told[1]
    assert "did not end within 1 s" in told[2]
    assert told[3].split() == ["selection", "ok", *told[3].split()[2:3], "12", "3"]
    kept = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert [part["ok"] for part in kept["parts"]] == [False, False, False, True]


def test_without_a_gpu_make_gpu_says_so_and_ends_with_two(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        command,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("there is no CUDA device: PyTorch ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
