from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.runs import find_runs


def run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "metrics.jsonl").touch()
    return path


def test_a_comparison_gives_its_runs_in_the_order_people_count(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "grid" / variant / seed)
        for variant in ("beta=0.5", "beta=0.9")
        for seed in ("seed-2", "seed-10")
    ]
    assert find_runs([tmp_path / "grid"]) == runs
    assert find_runs([runs[3], tmp_path / "grid"]) == [runs[3], *runs[:3]], "each once, in the order given"


def test_what_lies_inside_a_run_is_part_of_it(tmp_path: Path) -> None:
    run_folder = run(tmp_path / "run")
    run(run_folder / "controls" / "supervised")
    (run_folder / "model").mkdir()
    (run_folder / "model" / "config.json").write_text("{}")
    assert find_runs([tmp_path]) == [run_folder]


def test_a_folder_of_models_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds no run: no metrics\.jsonl in it or up to 3 folders down"):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    ("record", "order"), [('{"variants": {"b": [], "a": []}}', "bac"), ('{"variants": 7}', "abc"), ("{", "abc")]
)
def test_a_comparison_says_the_order_of_its_variants(tmp_path: Path, record: str, order: str) -> None:
    for name in "abc":
        run(tmp_path / name / "seed-0")
    (tmp_path / "comparison.json").write_text(record)
    assert [path.parent.name for path in find_runs([tmp_path])] == list(order)


def test_a_warm_up_that_variants_share_is_no_result(tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    warm_up = run(grid / "warm-up-0f" / "seed-0")
    (grid / "comparison.json").write_text('{"variants": {"beta=0.3": [], "warm-up-steps=9": []}}')
    assert find_runs([grid]) == [warm_up], "while it is all that there is"
    variants = [run(grid / name / "seed-0") for name in ("beta=0.3", "warm-up-steps=9")]
    assert find_runs([grid]) == variants
    assert find_runs([grid / "warm-up-0f"]) == [warm_up], "named by itself"
    assert find_runs([grid], warm_ups=True) == [*variants, warm_up], "as the doctor asks"
    (grid / "comparison.json").unlink()
    assert find_runs([grid]) == sorted([*variants, warm_up]), "a name alone makes no warm-up"
