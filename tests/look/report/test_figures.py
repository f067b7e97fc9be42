from __future__ import annotations

import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.look.report import trained_runs
from tests.look.report.run_folders import write_run

from groupwise.runs import Run
from groupwise_look.report.figures import beta_comparison, write_figures
from groupwise_look.report.results import Variant, group_runs


@pytest.fixture(scope="module")
def betas(tmp_path_factory: pytest.TempPathFactory, compared_runs: list[Run]) -> list[Variant]:
    """Plain GRPO and two values of beta, two seeds each."""
    folder = tmp_path_factory.mktemp("betas")
    smoothed = [
        trained_runs.language(folder / f"{beta}-{seed}", method="ema", seed=seed, **{"smoothing.beta": beta})
        for beta in (0.3, 0.6)
        for seed in (0, 1)
    ]
    return group_runs([*compared_runs[:2], *smoothed])


@pytest.fixture(scope="module")
def figure_files(tmp_path_factory: pytest.TempPathFactory, betas: list[Variant]) -> tuple[Path, list[Path], list[str]]:
    """The figures of these runs, and what was said of them."""
    folder = tmp_path_factory.mktemp("figures")
    return folder, *write_figures(betas, folder)


def pdf_text(pdf: Path) -> str:
    """Everything that a PDF's streams write, as far as letters are letters."""
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-1.")
    assert content.rstrip().endswith(b"%%EOF")
    streams = [
        zlib.decompress(stream_content)
        for stream_content in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
        if stream_content[:1] == b"x"
    ]
    return "".join(
        text.decode("latin-1") for stream in streams for text in re.findall(rb"\(((?:[^()\\]|\\.)*)\)", stream)
    ).replace("\0", "")


@pytest.mark.slow
def test_every_figure_of_the_paper_support_opens_and_says_what_it_shows(
    figure_files: tuple[Path, list[Path], list[str]],
) -> None:
    folder, paths, left_out = figure_files
    names = ["variance_reduction", "beta_comparison", "stability", "gains"]
    assert [path.name for path in paths] == [f"{name}.{suffix}" for name in names for suffix in ("pdf", "png")]
    assert left_out == []
    for name, expected_text in zip(
        names, ("Variance reduction", "smoothing.beta", "Reward", "held-out greedy/reward"), strict=True
    ):
        assert expected_text.replace(" ", "") in pdf_text(folder / f"{name}.pdf").replace(" ", "")
        with Image.open(folder / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
        assert 1200 < pixels.shape[1] < 1600, "across two columns at 200 dots an inch"
        coloured = (pixels.max(2) - pixels.min(2)) > 60
        assert coloured.sum() > 300, "lines in the variants' colours"


@pytest.mark.slow
def test_the_same_runs_give_the_same_files(
    betas: list[Variant], figure_files: tuple[Path, list[Path], list[str]], tmp_path: Path
) -> None:
    for path in write_figures(betas, tmp_path)[0]:
        assert path.read_bytes() == (figure_files[0] / path.name).read_bytes()


def test_a_figure_without_numbers_is_reported_with_the_setting_that_gives_them(tmp_path: Path) -> None:
    paths, left_out = write_figures(group_runs([write_run(tmp_path / "run", rows=[])]), tmp_path / "out")
    assert paths == []
    assert [line.partition(":")[0] for line in left_out] == [
        "variance_reduction",
        "beta_comparison",
        "stability",
        "gains",
    ]
    assert "method=ema" in left_out[0]


@pytest.mark.slow
def test_a_name_with_dollars_is_a_name(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", rows=[{"step": step, "reward": step, "eval/greedy/a_$b": step} for step in (1, 2)]
    )
    ended = Run(
        run.path, run.config, [], {"metric": "greedy/a_$b", "before": 0.1, "after": 0.9}, run.rows, "finished", []
    )
    paths, _ = write_figures([Variant("cost $\\frac{1$, $5", (ended,)), Variant("other", (ended,))], tmp_path / "out")
    assert len(paths) == 4


def test_a_warm_up_that_is_named_is_no_seed_of_a_beta(tmp_path: Path) -> None:
    runs = []
    for name, beta, score in (("a", 0.3, 0.5), ("b", 0.6, 1.0), ("warm-up-0f", 0.3, 0.0)):
        config = {"name": name, "seed": 0, "objective": {"smoothing": {"kind": "ema", "beta": beta}}}
        smoothed = {} if name.startswith("warm-up") else {"ema/variance_reduction_ratio": 0.1}
        row = {"step": 1, "stage": "main", "eval/greedy/correct": score, **smoothed}
        runs.append(write_run(tmp_path / name, config=config, rows=[row]))
    figure = beta_comparison(group_runs(runs))
    assert not isinstance(figure, str)
    drawn = figure.axes[1].get_lines()[0]
    assert np.asarray(drawn.get_xydata()).tolist() == [[0.3, 0.5], [0.6, 1.0]]
