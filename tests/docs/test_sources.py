"""`make sources`: every claim stands where it says, its command is one that runs, a result is read from where it
stands, and the committed table is that of the committed lines.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.docs.loading import loaded_once
from tests.docs.test_pages import command_group
from tests.experiment.tiny import TINY

from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.runs import read_lines
from groupwise_look.compare.grids import variants

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import pages
    import sources
    import sources_claims
    import sources_read
    import sources_run
    import sources_table
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

FILES = sources_claims.load()
RUNS = [run for file in FILES.values() for run in file.runs]
QUICK = ("language", "tales", "rewards")
CLAIM = """
title = "a test"

[[runs]]
id = "tiny"
command = "groupwise train {experiment} seed=0"
minutes = 1
bounds = "a test's"

[[runs.claims]]
name = "whole"
at = "results.md#the-first-run-the-cups-game"
says = "`worked` is not the reward"
read = {read}
low = 0.0
high = {high}
"""


def arguments(run: Any) -> dict[str, Any]:
    """Returns what the command line reads from a run's command."""
    verb, *words = shlex.split(run.command)[1:]
    return command_group().commands[verb].make_context(verb, words).params


def test_every_claim_stands_on_its_page_with_bounds_around_its_number() -> None:
    for run in RUNS:
        unfolded = sources_claims.claims(run)
        assert unfolded, run.id
        for claim in unfolded:
            page = " ".join(sources_claims.section(claim.at).split())
            assert claim.stated in page, claim.id
            assert all(claim.agrees(pages.value(number)) for number in pages.numbers(claim.stated)), claim.id


def test_claims_that_are_not_run_stand_on_their_page_and_say_why() -> None:
    for file in FILES.values():
        for claim in file.unrun:
            sources_claims.check_says(claim.at, claim.says)
            assert claim.why


def test_every_source_and_every_page_has_claims() -> None:
    assert list(FILES) == ["000", "001", "002", "003", "004"]
    stated = {claim.at.partition("#")[0] for run in RUNS for claim in sources_claims.claims(run)}
    assert stated == {"results.md", "study.md", "selection_findings.md"}


@pytest.mark.parametrize(
    "runs",
    [[run for run in RUNS if run.id in QUICK], pytest.param(RUNS, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_every_command_parses_and_its_experiment_with_its_changes_is_one(runs: list[Any]) -> None:
    assert len(runs) >= 2
    for run in runs:
        words = arguments(run)
        experiment = loaded_once(words["experiment"], tuple(words["overrides"] or ()))
        read = [claim.read for claim in sources_claims.claims(run)]
        if run.command.split()[1] == "train":
            stages = {span.name for span in experiment.spans}
            assert all(stages & set(path) for path in read if path[0] == "metrics"), run.id
            continue
        vary = words.get("vary") or experiment.comparison.vary  # type: ignore[union-attr]
        assert {path[0] for path in read} <= {variant.name for variant in variants(vary)}, run.id


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted({sources_claims.experiment_of(run) for run in RUNS}))
def test_every_experiment_passes_its_check(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process: a new one for each loads libraries for longer than most experiments are checked.
    monkeypatch.setattr(sys, "argv", ["groupwise", "check", name])
    with contextlib.suppress(SystemExit):
        main()
    said = capsys.readouterr()
    assert "Everything was read" in said.out, said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "005"], "'005' is no source and no run; did you mean 004?"),
        (["--minutes", "0"], "'0' is no number of minutes"),
        (["--python", "/nowhere/python"], "'/nowhere/python' is no program"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sources.main(words)
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert says in errors[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"at": "nowhere.md#a"}, "docs/guide has no page 'nowhere.md'"),
        ({"at": "results.md#nowhere"}, "results.md has no anchor 'nowhere'"),
        ({"says": "the moon is made of cheese"}, "does not say 'the moon is made of cheese'"),
        ({"value": ".9"}, ".9 is no number of"),
        ({"low": None, "high": None}, "has no bounds"),
        ({"within": 0.1, "low": None, "high": None}, "within asks for a value"),
    ],
)
def test_a_claim_that_does_not_stand_is_refused(change: dict[str, Any], says: str) -> None:
    run = next(run for run in RUNS if run.id == "language")
    statement = run.claims[0].model_copy(update={"value": None, "within": None, "low": 0.0} | change)
    with pytest.raises(ConfigError, match=says):
        sources_claims.claims(run.model_copy(update={"tables": (), "claims": (statement,)}))


def test_a_result_within_the_rounding_of_the_stated_number_agrees() -> None:
    claim = sources_claims.Claim("a", "p.md#a", "s", ".44", 0.44, 0.44, ("end",))
    assert claim.agrees(0.4449)
    assert not claim.agrees(0.4451)
    assert not claim.agrees(0.4349)
    assert not sources_claims.Claim("a", "p.md#a", "in words", "", None, 0.0, ("end",)).agrees(1e-9)
    assert not sources_claims.Claim("a", "p.md#a", "equal", "+.000", 0.0, 0.0, ("end",)).agrees(1e-7)


def test_a_difference_that_agrees_would_not_agree_with_the_opposite_sign_and_no_share_is_above_1() -> None:
    lines = sources_run.current(RUNS, read_lines(sources.LINES).rows)
    counts: Counter[str] = Counter()
    for run in RUNS:
        for claim in sources_claims.claims(run):
            stated = [pages.value(number) for number in pages.numbers(claim.stated)]
            if not claim.is_difference:
                is_share = claim.read[-1] in ("mean", "before", "ode/asked", "ode/judge", "greedy/correct")
                is_share = is_share and bool(stated) and 0 <= stated[0] <= 1
                assert not is_share or claim.high is None or claim.high <= 1, claim.id
                continue
            if claim.is_smoke_test:
                counts["smoke"] += 1
                assert claim.sign == 0, claim.id
                continue
            counts["tested"] += 1
            measured = [number for number in stated or [lines[claim.id]["result"]] if number]
            assert claim.low == claim.high == 0 or not any(claim.agrees(-number) for number in measured), claim.id
    assert min(counts["smoke"], counts["tested"]) > 20


def test_a_difference_over_seeds_has_to_tell_what_the_page_tells() -> None:
    claims = {claim.id: claim for run in RUNS for claim in sources_claims.claims(run)}
    told, untold = (claims[f"cups/{method}/difference"] for method in ("gspo", "ema"))
    assert (told.interval, untold.interval) == ((-0.395, -0.310), (-0.004, 0.019))
    assert (told.sign, untold.sign, claims["digits/conservative/difference"].sign) == (-1, 0, 0)
    assert claims["modes/hard/difference"].agrees(0.0)
    assert not claims["modes/hard/difference"].agrees(0.0004)
    assert claims["rewards/legacy ahead with 1"].sign == 1
    verdicts = {
        (0.35, (0.31, 0.39)): ("does not agree",) * 2,
        (-0.35, (-0.39, -0.31)): ("agrees", "does not agree"),
        (-0.35, (-0.6, 0.1)): ("does not agree",) * 2,
        (0.01, (-0.01, 0.03)): ("does not agree", "agrees"),
        (0.01, (0.005, 0.015)): ("does not agree",) * 2,
    }
    for (mean, interval), expected in verdicts.items():
        line = {"result": mean, "interval": list(interval)}
        assert tuple(sources_table.verdict(claim, line) for claim in (told, untold)) == expected
    assert sources_table.verdict(untold, {"result": -0.01}) == "smoke test"
    assert sources_table.verdict(told, {"result": 0.01}) == "does not agree"


def test_a_comparison_is_measured_over_as_many_seeds_as_are_asked_for(tmp_path: Path) -> None:
    run = next(run for run in RUNS if run.id == "cups")
    many = sources_run.with_seeds(run, 10)
    assert (many.command, many.minutes) == ("groupwise compare source_000 --seeds 10", 10 * run.minutes)
    training = next(run for run in RUNS if run.id == "tales")
    assert sources_run.with_seeds(training, 10) is training
    row = {"variant": "method=ema", "seeds": [10, 11], "difference": {"mean": 0.01, "low": -0.01, "high": 0.03}}
    (tmp_path / "results.json").write_text(json.dumps({"rows": [row]}))
    claim = next(claim for claim in sources_claims.claims(run) if claim.id == "cups/ema/difference")
    measured = sources_run._result(claim, sources_read.Outcome(tmp_path), "")
    assert measured == {"result": 0.01, "interval": [-0.01, 0.03]}


def test_numbers_are_read_from_where_a_comparison_and_a_run_leave_them(tmp_path: Path) -> None:
    row = {"variant": "a=1", "after": {"mean": 0.75}, "end": {"right": 0.5}}
    (tmp_path / "results.json").write_text(json.dumps({"rows": [row, {**row, "variant": "a=2", "before": 0.25}]}))
    steps = [{"step": step, "stage": stage, "loss": step} for stage in ("first", "then") for step in range(8)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    printed = "said\n\n| beta | of the raw variance |\n|---|---|\n| 0.9 | 0.88 |\n"
    outcome = sources_read.Outcome(tmp_path, printed)
    assert outcome.read(("a=1", "after", "mean")) == 0.75
    assert outcome.read(("a=2", "before")) == 0.25
    assert outcome.read(("metrics", "loss", "then", 0, 0.25)) == 0.5
    assert outcome.read(("metrics", "first", 0.5, 1, "loss")) == 5.5
    assert outcome.read(("printed", "0.9", "of the raw variance")) == 0.88
    claim = sources_claims.Claim("a", "p", "s", "", 0.0, 1.0, ("a=1", "after", "mean"), ("a=1", "end", "right"), 100)
    assert outcome.measure(claim) == 25.0
    for missing in (("a=3", "after"), ("metrics", "gain", "then", 0, 1), ("a=1", "after"), ("printed", "1", "x")):
        with pytest.raises(ValueError, match=r"left no|has no numbers|no number|no row"):
            outcome.read(missing)


@pytest.mark.slow
def test_a_claim_is_measured_once_a_cut_off_run_goes_on_and_a_failure_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = tmp_path / "tiny.toml"
    experiment.write_text(TINY)
    (tmp_path / "claims").mkdir()

    def claims_of(read: list[Any], high: float) -> None:
        (tmp_path / "claims" / "000.toml").write_text(
            CLAIM.format(experiment=experiment, read=json.dumps(read), high=high)
        )

    load = sources_claims.load
    monkeypatch.setattr(sources_claims, "load", lambda: load(tmp_path / "claims"))
    lines = tmp_path / "sources.jsonl"

    def called(*more: str) -> int:
        return sources.main(["--runs", str(tmp_path / "runs"), "--lines", str(lines), *more])

    claims_of(["end", "greedy/correct"], 1.0)
    assert called("--minutes", "0.0001") == 1
    assert [line["exit"] for line in read_lines(lines).rows] == [None]
    capsys.readouterr()
    assert called() == 0, "what met its deadline is made again"
    line = read_lines(lines).rows[-1]
    assert line["exit"] == 0
    assert 0 <= line["result"] <= 1
    assert "agrees: tiny/whole" in capsys.readouterr().out
    assert called() == 0
    assert "1 of 1 commands are measured; 0 to make" in capsys.readouterr().out
    claims_of(["end", "greedy/correct"], -1.0)
    assert called("--table") == 1, "another bound judges the line that is there"
    assert "| does not agree |" in lines.with_suffix(".md").read_text()
    claims_of(["end", "nowhere"], 1.0)
    assert called() == 1, "another reading is measured anew"
    assert "the run left no 'nowhere'" in read_lines(lines).rows[-1]["error"]
    claims_of(["end", "greedy/correct"], 1.0)
    experiment.write_text(experiment.read_text().replace("num_held_out = 8", "num_held_out = -8"))
    assert called() == 1, "another experiment is measured anew"
    assert "num_held_out" in read_lines(lines).rows[-1]["error"]


@pytest.mark.slow
def test_the_committed_table_is_that_of_the_committed_lines() -> None:
    lines = sources_run.current(RUNS, read_lines(sources.LINES).rows)
    assert lines
    renewed = "write python benchmarks/sources.py --table: a claim, its page or its experiment is another one by now"
    assert sources.LINES.with_suffix(".md").read_text() == sources_table.document(FILES, lines), renewed
