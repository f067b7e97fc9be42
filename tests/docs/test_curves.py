"""`benchmarks/curves.py`: means over quarters of a stage, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import curves

    return curves


def run(folder: Path, seed: int, scale: float = 1.0) -> str:
    """Two steps of a supervised stage, twelve that sample: `loss_sup` is 1 to 12 times the scale, `lambda_sup` .5."""
    folder.mkdir()
    stages = [
        {"name": "base", "num_steps": 2, "set": {}},
        {"name": "full", "num_steps": 12, "set": {"train": {"max_grad_norm": 0.5}}},
    ]
    config = {"name": "source_001_tiny", "seed": seed, "train": {"max_grad_norm": 1.0}, "stages": stages}
    rows: list[dict[str, Any]] = [{"step": step, "stage": "base", "loss_sup": 100.0} for step in (1, 2)]
    rows[0]["eval/restored/reward"], rows[1]["eval/restored/reward"] = 0.125, 0.25
    for step in range(1, 13):
        curve = {"loss_pg": 1e-15, "loss_sup": scale * step, "lambda_sup": 0.5, "grad_norm": 0.15 * step}
        rows.append({"step": 2 + step, "stage": "full", "advantages_mean": 0.01 - 0.03 * (step == 3), **curve})
    rows[-1]["eval/restored/reward"] = 0.5 + seed / 8
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps({"metric": "restored/reward", "steps": 14}))
    return str(folder)


def test_a_curve_is_the_mean_over_the_first_and_the_last_quarter_of_a_stage_that_samples(
    curves: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves.main([run(tmp_path / "a", 0)])
    said = capsys.readouterr().out
    assert said.startswith("|  | full, first quarter | last |\n|---|---|---|\n| `loss_pg` | 0 | 0 |\n")
    assert "| `loss_sup` | 2 | 11 |\n| `loss_sup / lambda_sup` | 4 | 22 |\n" in said
    assert "source_001_tiny, seeds 0:" in said
    assert "| base | 1 | 0.25 |  |  |\n" in said
    # Nine of twelve steps have a norm above .5; one has a mean of -.02, the others of .01.
    assert "| full | 0.5 | 0.5 | 0.75 | 0.02 |\n" in said


def test_two_seeds_stand_beside_each_other_and_three_have_a_mean_and_ends(
    curves: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [run(tmp_path / str(seed), seed, scale) for seed, scale in enumerate((1.0, 2.0, 6.0))]
    curves.main(folders[:2])
    assert "| `loss_sup` | 2, 4 | 11, 22 |" in capsys.readouterr().out
    curves.main(folders)
    said = capsys.readouterr().out
    assert "| `loss_sup` | 6 (2 to 12) | 33 (11 to 66) |" in said
    assert "| `lambda_sup` | 0.5 | 0.5 |" in said
    assert "| full | 0.5 | 0.625 (0.5 to 0.75) | 0.75 | 0.02 |" in said


def test_a_run_that_has_not_ended_is_refused(curves: Any, tmp_path: Path) -> None:
    folder = run(tmp_path / "a", 0)
    (tmp_path / "a" / "summary.json").unlink()
    with pytest.raises(SystemExit, match="has not ended; go on with `groupwise resume"):
        curves.main([folder])
