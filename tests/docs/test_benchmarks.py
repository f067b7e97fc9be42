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
from tests.engines.vllm_server import ENVIRONMENT, EXECUTABLE

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


@pytest.mark.slow
def test_the_objectives_benchmark_runs_every_preset_and_overlay() -> None:
    from groupwise.objective.preset import method_names, overlay_names
    from objective import Batch

    batch = Batch(16, 8)
    for name in [*method_names(), *(f"dapo+{overlay}" for overlay in overlay_names())]:
        loss, gradient = batch.preset(name, read=True)()
        assert bool(loss.isfinite()), name
        assert bool(gradient.isfinite().all()), name


LONGER = ("language", "restoration", "diffusion", "selection", "language_smollm", "qwen_full", "qwen_autocast")
LONGER += ("qwen_shards", "qwen_7b", "unet_512", "flow_1b")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("qwen_lora", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in LONGER),
    ],
)
def test_a_part_of_make_gpu_runs_on_a_cpu(name: str, tmp_path: Path) -> None:
    import gpu_part

    result = gpu_part.main([name, str(tmp_path), "cpu", "--tiny"])
    assert result["ok"], result
    assert result["tokens_per_second"]["sampling"] > 0
    assert result["seconds_by_part"]["update"] > 0
    assert json.loads((tmp_path / f"{name}.json").read_text()) == result
    if name.startswith(("qwen", "unet", "flow")):
        assert name not in ("qwen_lora", "qwen_shards") or result["formula_mib"] > 0
        assert result["tokens_per_second"]["scoring"] > 0
    if name == "qwen_shards":
        environment = json.loads((tmp_path / "qwen_shards-run" / "environment.json").read_text())
        assert environment["starts"][-1]["num_processes"] == 2


@pytest.mark.nightly
@pytest.mark.skipif(not EXECUTABLE.exists(), reason="the vLLM server is not built; `make engines` builds it")
def test_the_part_of_make_gpu_with_a_vllm_server_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_part

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{EXECUTABLE.parent}:{os.environ['PATH']}")
    result = gpu_part.main(["qwen_vllm", str(tmp_path), "cpu", "--tiny"])
    assert result["ok"], result
    assert {note.split(":")[0] for note in result["notes"][1:]} == {
        "sampling/sync_seconds",
        "sampling/proof_seconds",
        "sampling/proof_difference",
    }


def test_make_gpu_knows_every_part_and_each_has_a_deadline() -> None:
    import gpu
    import gpu_models
    import gpu_part

    parts = {*gpu_part.RUNS, *gpu_models.LANGUAGE, *gpu_models.IMAGES, "tests", *gpu_part.PEERS}
    assert set(gpu.SECONDS) == parts
    assert set(gpu_part.SMALL) == set(gpu_part.RUNS)
    order = list(gpu.SECONDS)
    for peer, ours in gpu_part.PEERS.items():
        assert order.index(peer) > order.index(ours), "the peer stands beside a part that ran before it"
    assert set(gpu.NEEDS) | set(gpu.ON_ALL_GPUS) < set(order)


def test_qwen_has_the_shape_of_its_name() -> None:
    from gpu_models import qwen_shape
    from transformers import Qwen2Config

    from groupwise.estimate import Shape

    for size, count in (("0.5b", 494_032_768), ("7b", 7_615_616_512)):
        assert Shape.of(Qwen2Config(**qwen_shape(tiny=False, size=size))).parameters == count, "as on the model's card"


@pytest.mark.slow
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


ON_H200 = {
    "0.5B, all weights": "qwen_shards",
    "0.5B, LoRA": "qwen_lora",
    "7B": "qwen_7b",
    "UNet": "unet_512",
    "flow transformer": "flow_1b",
}
NUMBERS = ("none", "one", "two", "three", "four", "five")


def test_the_table_of_what_ran_on_a_gpu_is_what_was_kept() -> None:
    parts = json.loads((BENCHMARKS / "results" / "gpu.json").read_text())["parts"]
    page = (BENCHMARKS.parent / "docs" / "guide" / "install.md").read_text().partition("### What ran on an H200")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    assert len(rows[2:]) == len(ON_H200)
    for model, steps, seconds, peak, foretold in rows[2:]:
        kept = parts[next(part for name, part in ON_H200.items() if model.startswith(name))]
        assert int(steps) == kept["steps"]
        spent = [kept["seconds"][name] for name in ("sampling", "scoring", "update")]
        assert [float(text) for text in seconds.split(", ")] == pytest.approx(spent, abs=0.0051)
        assert int(peak.replace(",", "")) == kept["peak_mib"]
        assert int(foretold.replace(",", "")) == kept["foretold_mib"]
        beside = model.rpartition("beside ")[2].split()[0] if "beside" in model else "none"
        assert NUMBERS.index(beside) == kept["beside"], model


@pytest.mark.slow
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
