"""Planted faults and healthy runs: does the doctor name the cause, and is it silent where nothing is wrong?

    python benchmarks/doctor_bench.py                                     # every run that is missing, three seeds
    python benchmarks/doctor_bench.py --only rate_far_too_high --seeds 1  # one fault or healthy run
    python benchmarks/doctor_bench.py --judge                             # no run: judge those that are there again
    python benchmarks/doctor_bench.py --table                             # no run: the table again

A fault is data in `doctor_faults/*.toml`: what a person did wrong, as changes of a shipped experiment and, where
settings cannot say it, as a function beside. Which findings count as naming it stands apart, in
`doctor_faults/names.toml`. Each run that ended, well or badly, is a line of `results/doctor_bench.jsonl`; the same
command leaves it out and goes on with the next. Warm-ups are made once a seed and shared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import doctor_bench_table
from doctor_bench_faults import Case, cases
from doctor_bench_run import judged, measured
from resumable import append_lines, minutes, run_main

from groupwise.runs import read_lines

LINES = Path(__file__).resolve().parent / "results" / "doctor_bench.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the runs that are missing, judges them and writes the table."""
    asked = _options().parse_args(arguments)
    known = cases()
    if unknown := set(asked.only or ()) - set(known):
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; write one of {', '.join(known)}")
    wanted = [case for name, case in known.items() if not asked.only or name in asked.only]
    wanted = [case for case in wanted if not asked.planted_by or case.planted_by in asked.planted_by]
    places = [(case, seed) for seed in range(asked.first_seed, asked.first_seed + asked.seeds) for case in wanted]
    if asked.judge:
        _judge_again(asked.lines, places, asked.runs)
    elif not asked.table:
        _make(asked, places)
    rows = current(read_lines(asked.lines).rows, known)
    table = asked.lines.with_suffix(".md")
    table.write_text(doctor_bench_table.document(known, rows), encoding="utf-8")
    print(f"written to {table}")
    return 0


def _make(asked: argparse.Namespace, places: Sequence[tuple[Case, int]]) -> None:
    made = {(row["name"], row["seed"], row["case"]) for row in read_lines(asked.lines).rows}
    missing = [(case, seed) for case, seed in places if (case.name, seed, case.digest) not in made]
    print(f"{len(places) - len(missing)} of {len(places)} runs are there; {len(missing)} to make", flush=True)
    for number, (case, seed) in enumerate(missing, 1):
        row = measured(case, seed, asked.runs, 60 * asked.minutes)
        if not asked.no_judgement:
            append_lines(asked.lines, [row])
        print(
            f"{number}/{len(missing)}  {doctor_bench_table.line(case, row, judged=not asked.no_judgement)}", flush=True
        )


def _judge_again(lines: Path, places: Sequence[tuple[Case, int]], runs: Path) -> None:
    """Writes the lines anew whose run folders are there, with what the rules say of them now."""
    asked = {(case.name, seed, case.digest): case for case, seed in places}
    rows: list[dict[str, Any]] = []
    for row in read_lines(lines).rows:
        case = asked.get((row["name"], row["seed"], row["case"]))
        said = None if case is None else judged(case, row["seed"], runs)
        if case is not None and said is not None:
            row = {**row, **said}
            print(doctor_bench_table.line(case, row), flush=True)
        rows.append(row)
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def current(rows: Sequence[dict[str, Any]], known: dict[str, Case]) -> list[dict[str, Any]]:
    """Returns the last line of each case and seed whose case is still what was run."""
    last = {
        (row["name"], row["seed"]): row
        for row in rows
        if row["name"] in known and row["case"] == known[row["name"]].digest
    }
    return [last[place] for place in sorted(last)]


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="a fault or healthy run; may be repeated")
    parser.add_argument(
        "--planted-by", action="append", metavar="WHO", help="a file of faults, without .toml, or healthy"
    )
    parser.add_argument("--seeds", type=int, choices=range(1, 11), default=3, metavar="N", help="how many, 1 to 10")
    parser.add_argument("--first-seed", type=int, choices=range(10), default=0, metavar="N", help="the first of them")
    parser.add_argument("--minutes", type=minutes, default=10.0, help="deadline of a run")
    parser.add_argument("--judge", action="store_true", help="make no run; judge those that are there again")
    parser.add_argument("--table", action="store_true", help="make no run; write the table again")
    parser.add_argument("--no-judgement", action="store_true", help="say only how a run ended, and keep no line")
    parser.add_argument("--runs", type=Path, default=Path("runs/doctor_bench"), help="where the run folders go")
    parser.add_argument("--lines", type=Path, default=LINES, help="one JSON line a run; the table stands beside it")
    return parser


if __name__ == "__main__":
    run_main(main)
