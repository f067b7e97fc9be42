"""`make seeds`: runs that are there are not made again, one that ends badly is a line too, and the tables say what the
lines hold.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.experiment.tiny import TINY

from groupwise.experiment.catalogue import shipped
from groupwise.runs import read_lines

ROOT = Path(__file__).resolve().parents[2]
CONTROL = '\n[controls.rejection_sampling]\nset = { method = "rejection_sampling" }\n'


@pytest.fixture(scope="module")
def seeds() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import seeds

        yield seeds


@pytest.fixture(scope="module")
def tables(seeds: Any) -> Any:
    return seeds.seeds_table


@pytest.fixture(scope="module")
def measured(seeds: Any) -> list[dict[str, Any]]:
    """The committed lines of the experiments as they ship."""
    return seeds.current(read_lines(seeds.LINES).rows)


def row(seed: int, after: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    ended = {
        **{
            "metric": "greedy/correct",
            "before": 0.25,
            "after": after,
            "start": {"greedy/worked": 0.0},
            "end": {"greedy/worked": 0.5},
        },
        "controls": {
            "supervised": {
                "end": {"greedy/correct": 0.5},
                "above": {"greedy/correct": [0.5 + 0.01 * seed, 0.25 * (seed - 10), 0.75]},
            }
        },
    }
    said = {
        "experiment": "language",
        "seed": seed,
        "config": "c",
        "machine": "M, load 3.1 before; torch",
        "exit": 0,
        "findings": [],
        "cpu_seconds": 50.0,
    }
    return {**said, **(ended if after is not None else {}), **changes}


def test_every_shipped_experiment_is_run_or_said_to_need_a_model(seeds: Any) -> None:
    assert sorted([*seeds.ORDER, *seeds.NEED_A_MODEL]) == shipped()


def test_another_setting_is_another_configuration_and_another_description_is_not(seeds: Any, tmp_path: Path) -> None:
    prints = []
    for name, text in {
        "a": TINY,
        "b": TINY + "\n[comparison]\nseeds = 9\n",
        "c": TINY.replace("group_size = 4", "group_size = 8"),
    }.items():
        (tmp_path / f"{name}.toml").write_text(text.replace("for tests", f"for the test of {name}"))
        prints.append(seeds.fingerprint(str(tmp_path / f"{name}.toml")))
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.slow
def test_a_run_is_measured_once_and_one_that_fails_is_a_line(
    seeds: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, late = (tmp_path / f"{name}.toml" for name in ("good", "bad", "late"))
    good.write_text(TINY + CONTROL)
    bad.write_text(TINY.replace("num_held_out = 8", "num_held_out = -8"))
    late.write_text(TINY.replace("group_size = 4", "group_size = 5"))
    lines = tmp_path / "seeds.jsonl"

    def called(path: Path, *more: str) -> int:
        places = ["--seeds", "1", "--runs", str(tmp_path / "runs"), "--lines", str(lines)]
        return seeds.main(["--only", str(path), *places, *more])

    assert called(good) == 0
    first = json.loads(lines.read_text())
    assert first["exit"] == 0
    assert first["after"] == first["end"][first["metric"]]
    control = first["controls"]["rejection_sampling"]
    assert control["above"][first["metric"]][0] == pytest.approx(first["after"] - control["end"][first["metric"]])
    assert first["cpu_seconds"] > 0
    assert not list((tmp_path / "runs").iterdir()), "a measured run's folder and its cache are taken away"
    capsys.readouterr()
    assert called(good) == 0
    assert "1 of 1 runs are there; 0 to make" in capsys.readouterr().out
    assert called(bad) == 1
    assert called(late, "--minutes", "0.01") == 1
    ends = [json.loads(text) for text in lines.read_text().splitlines()]
    assert [each["exit"] for each in ends] == [0, 2, None]
    assert "num_held_out" in ends[1]["error"]
    assert ends[2]["error"] == "did not end within 0.6 s"
    good.write_text(TINY.replace("learning_rate = 1e-3", "learning_rate = 2e-3"))
    assert called(good, "--table") == 0
    assert "/good.toml`" not in lines.with_suffix(".md").read_text(), "a line of other settings is not shown"


@pytest.mark.slow
def test_the_committed_tables_are_those_of_the_committed_lines(seeds: Any, tables: Any, measured: Any) -> None:
    assert measured
    assert seeds.LINES.with_suffix(".md").read_text() == tables.document(measured, seeds.ORDER, seeds.NEED_A_MODEL)


def test_the_default_reaches_its_number_with_ten_of_ten_and_the_documents_quote_those(
    tables: Any, measured: Any
) -> None:
    rows = [row for row in measured if row["experiment"] == "language"]
    assert [row["seed"] for row in rows] == list(range(10, 20))
    assert all(
        row["exit"] == 0 and row["before"] < 0.4 and row["after"] >= 0.95 and not row["findings"] for row in rows
    )
    page = (ROOT / "docs" / "guide" / "results.md").read_text()
    ends = {"after the warm-up": "start", "GRPO, 80 steps": "end"}
    lines = {label: [row[key] for row in rows] for label, key in ends.items()}
    lines["control: supervised training continued"] = [row["controls"]["supervised"]["end"] for row in rows]
    lines["control: rejection sampling"] = [row["controls"]["rejection_sampling"]["end"] for row in rows]
    for label, values in lines.items():
        metrics = ("greedy/correct", "sampled/correct", "greedy/worked", "sampled/worked")
        cells = [tables.spread([value[metric] for value in values]).replace("0.", ".") for metric in metrics]
        assert f"| {label} | {' | '.join(cells)} |" in page
    low, high = (end(row["after"] for row in rows) for end in (min, max))
    assert f"at {low:.3f} to {high:.3f}:".replace("0.", ".") in (ROOT / "README.md").read_text()


def test_the_example_of_a_kl_ends_without_a_finding_at_the_coefficient_that_ships(measured: Any) -> None:
    rows = [row for row in measured if row["experiment"] == "diffusion_jpeg"]
    assert len(rows) >= 3
    assert all(
        row["exit"] == row["doctor_exit"] == 0 and row["start"]["ode/judge"] - row["end"]["ode/judge"] < 0.01
        for row in rows
    )


OVER_SEEDS = [
    ("language", "supervised", "greedy/correct", 1, 3, "gains .794 {}, 95 % over"),
    ("language", "rejection_sampling", "greedy/correct", 1, 4, "(.0008 above it {})"),
    ("language_countdown", "supervised", "greedy/solved", 1, 3, ".140 {}, 95 % over the seeds"),
    ("language_countdown", "rejection_sampling", "greedy/solved", 1, 3, "(-.007 {})"),
    ("diffusion", "supervised", "ode/asked", 1, 3, ".453 on *asked* {}"),
    ("diffusion", "supervised", "ode/judge", 1, 3, ".450 on the judge {}"),
    ("diffusion", "rejection_sampling", "ode/asked", 1, 3, ".068 on *asked* {}"),
    ("diffusion", "rejection_sampling", "ode/judge", 1, 3, ".151 on the judge {}"),
    ("restoration", "supervised", "restored/read", 100, 1, "10.9 points on the reader {}"),
    ("restoration", "supervised", "restored/judge", 100, 1, "2.9 points on the judge {}"),
    ("restoration", "supervised", "restored/psnr", -1, 2, ".36 dB of PSNR {}"),
    ("restoration", "supervised", "restored/ssim", -1, 3, ".008 of SSIM {}"),
    ("restoration_flow", "supervised", "ode/read", 100, 1, "7.5 points on the reader {}"),
    ("restoration_flow", "supervised", "ode/judge", 100, 1, "6.5 on the judge {}"),
    ("restoration_flow", "supervised", "ode/psnr", 1, 2, ".36 dB {}"),
    ("restoration_flow", "rejection_sampling", "ode/read", 100, 1, "10.4 on the reader {}"),
    ("restoration_upscale", "supervised", "restored/read", 1, 3, "| .049 {} |"),
    ("restoration_upscale", "supervised", "restored/judge", 1, 3, "| .014 {} |"),
    ("restoration_upscale", "supervised", "restored/psnr", 1, 2, "| -.21 {} |"),
    ("restoration_codec", "supervised", "restored/codec_psnr", 1, 3, ".097 dB of PSNR after JPEG {}"),
    ("restoration_codec", "supervised", "restored/codec_ssim", 1, 4, ".0034 of SSIM {}"),
    ("restoration_codec", "supervised", "restored/psnr", -1, 3, ".103 dB below it before JPEG {}"),
]
"""Experiment, control, metric, factor and digits of the page, and what it says of the difference with the interval in
the braces.
"""
PAGE_OF_RESULTS = (ROOT / "docs" / "guide" / "results.md").read_text(encoding="utf-8")
OF_SEEDS = [
    (
        "language_countdown",
        ("after the warm-up, 500 steps", "GRPO, 100 steps"),
        ("greedy/solved", "sampled/solved", "sampled/keeps_the_rules", "sampled/pass@4"),
    ),
    (
        "guess_the_number",
        ("after the warm-up", "GRPO"),
        ("sampled/environment", "greedy/environment", "sampled/patient"),
    ),
    ("diffusion", ("base", "GRPO, 50 steps"), ("ode/asked", "ode/judge", "ode/diversity")),
    ("restoration", ("start", "GRPO, 150 steps"), ("restored/read", "restored/judge")),
    ("restoration_flow", ("flow: start", "flow: Flow-GRPO, 60 steps"), ("ode/read", "ode/judge")),
]
"""Experiment, how its rows before and after are called, and the metrics of the first columns."""


@pytest.mark.parametrize(("name", "control", "metric", "factor", "digits", "says"), OVER_SEEDS)
def test_the_brackets_of_the_results_are_those_of_the_seeds(
    name: str, control: str, metric: str, factor: int, digits: int, says: str, measured: Any
) -> None:
    import seeds_metrics

    rows = [row for row in measured if row["experiment"] == name and "end" in row]
    estimate = seeds_metrics.above(rows, control, metric)
    mean, *ends = (
        re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")
        for value in (factor * estimate.mean, *sorted((factor * estimate.low, factor * estimate.high)))
    )
    assert mean in says
    assert says.format(f"[{', '.join(ends)}]") in PAGE_OF_RESULTS


@pytest.mark.parametrize(("name", "labels", "metrics"), OF_SEEDS, ids=[entry[0] for entry in OF_SEEDS])
def test_the_results_are_those_of_the_seeds(
    name: str, labels: tuple[str, str], metrics: tuple[str, ...], measured: Any
) -> None:
    """Mean over seeds, the lowest and the highest, as the lines of `make seeds` have them."""
    rows = [row for row in measured if row["experiment"] == name and "end" in row]
    assert len(rows) >= 3
    for label, place in zip(labels, ("start", "end"), strict=True):
        cells = [label]
        for metric in metrics:
            values = [row[place][metric] for row in rows]
            numbers = (statistics.fmean(values), min(values), max(values))
            mean, low, high = (f"{number:.3f}".lstrip("0") for number in numbers)
            cells.append(f"{mean} ({low} to {high})")
        assert f"| {' | '.join(cells)} |" in PAGE_OF_RESULTS.replace("**", "")
