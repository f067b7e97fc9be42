"""Every claim of the guide about the five sources, measured on the code as it is: `make sources`.

    python benchmarks/sources.py                    # all of them, the cheapest command first: hours
    python benchmarks/sources.py --only 003         # make sources ARGS="--only 003", or the name of a run
    python benchmarks/sources.py --seeds 10         # comparisons over ten seeds: differences by sign and interval
    python benchmarks/sources.py --list             # the claims, their bounds and their commands; measures nothing
    python benchmarks/sources.py --table            # the table again, from what is there

With one seed a difference is tested by its sign where the page tells one, and is a smoke test where it tells none.

A claim is data (`benchmarks/claims/`): where it is stated, its bounds, its command with one seed, and how the result is
read. A claim that was measured is a line of `results/sources.jsonl`; the same command leaves it out, goes on with a run
that was cut off, and makes the others. A line counts for the command and the experiment that it was measured with. Code
is not part of that: to measure other code beside, name its interpreter and other lines, `--python OLD/.venv/bin/python
--lines benchmarks/results/sources_before.jsonl`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import sources_claims
import sources_run
import sources_table
from resumable import append_lines, minutes, run_main

from groupwise.config import ConfigError, nearest
from groupwise.runs import read_lines

LINES = sources_claims.HERE / "results" / "sources.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the claims that are missing and writes the table; returns the exit status: 1 where a claim of those
    chosen failed or does not agree.
    """
    try:
        asked = options().parse_args(arguments)
        files = {
            source: file.model_copy(
                update={"runs": tuple(sources_run.with_seeds(run, asked.seeds) for run in file.runs)}
            )
            for source, file in sources_claims.load().items()
        }
        chosen = [
            (source, run)
            for source, file in files.items()
            for run in file.runs
            if not asked.only or source in asked.only or run.id in asked.only
        ]
        runs = [run for file in files.values() for run in file.runs]
        if asked.list:
            _print_claims(files, chosen)
            return 0
        if not asked.table:
            _measure(asked, chosen)
        lines = sources_run.current(runs, read_lines(asked.lines).rows)
        table = asked.lines.with_suffix(".md")
        table.write_text(sources_table.document(files, lines), encoding="utf-8")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    print(f"written to {table}")
    verdicts = [
        sources_table.verdict(claim, lines.get(claim.id)) for _, run in chosen for claim in sources_claims.claims(run)
    ]
    return int(any(verdict in ("does not agree", "failed") for verdict in verdicts))


def _measure(asked: argparse.Namespace, chosen: Sequence[tuple[str, sources_claims.Run]]) -> None:
    lines = sources_run.current([run for _, run in chosen], read_lines(asked.lines).rows)
    runs = sources_run.cheapest(pair for pair in chosen if sources_run.missing(pair[1], lines))
    print(
        f"{len(chosen) - len(runs)} of {len(chosen)} commands are measured; {len(runs)} to make, about"
        f" {sum(run.minutes for _, run in runs):.0f} minutes of one free core",
        flush=True,
    )
    for place, (source, run) in enumerate(runs, 1):
        print(f"{place}/{len(runs)}  {run.id}, about {run.minutes:g} minutes: {run.command}", flush=True)
        rows = sources_run.measured(
            source, run, asked.runs / run.id, 60 * asked.minutes, keep=asked.keep, python=asked.python
        )
        append_lines(asked.lines, rows)
        for claim, row in zip(sources_claims.claims(run), rows, strict=True):
            print(sources_table.progress(claim, row), flush=True)


def _print_claims(
    files: dict[str, sources_claims.ClaimsFile], chosen: Sequence[tuple[str, sources_claims.Run]]
) -> None:
    for source, run in chosen:
        print(f"{source}  {run.command}")
        for claim in sources_claims.claims(run):
            print(f"  {claim.id}  stated {claim.stated or repr(claim.says)}, {sources_table.bounds(claim)}  {claim.at}")
    for source in dict.fromkeys(source for source, _ in chosen):
        for claim in files[source].unrun:
            print(f"{source}  {claim.name}  not run: {claim.why}  {claim.at}")


def options() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", type=_choice, metavar="NAME", help="a source, 000 to 004, or a run; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="print the claims and measure nothing")
    parser.add_argument("--seeds", type=int, choices=range(1, 101), default=1, metavar="N", help="of each comparison")
    parser.add_argument("--table", action="store_true", help="make no run, only the table")
    parser.add_argument(
        "--minutes",
        type=minutes,
        default=120.0,
        help="a command that has not ended by then is ended; the next call goes on with it",
    )
    parser.add_argument("--keep", action="store_true", help="keep the run folders")
    parser.add_argument("--runs", type=Path, default=Path("runs/sources"), help="where the run folders go")
    parser.add_argument("--lines", type=Path, default=LINES, help="one JSON line a claim; the table stands beside it")
    parser.add_argument(
        "--python", type=_interpreter, default=sys.executable, help="interpreter of the environment to measure"
    )
    return parser


def _choice(text: str) -> str:
    files = sources_claims.load()
    names = [*files, *(run.id for file in files.values() for run in file.runs)]
    if text not in names:
        near = nearest(text, names)
        hint = f"; did you mean {near}?" if near else ";"
        raise argparse.ArgumentTypeError(f"{text!r} is no source and no run{hint} write 000 to 004, or a run of --list")
    return text


def _interpreter(text: str) -> str:
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no program; write the path of a Python that has groupwise")
    return text


if __name__ == "__main__":
    run_main(main)
