"""Every shipped experiment with ten seeds that nobody tuned on, each with its controls: `make seeds`.

    python benchmarks/seeds.py                                            # all of them, the cheapest first
    python benchmarks/seeds.py --only language --only diffusion --seeds 3 # make seeds ARGS="--only language --seeds 3"
    python benchmarks/seeds.py --table                                    # the tables again, from what is there

A run is `groupwise train NAME seed=S` with its controls, in a process and with a cache of its own, so that its CPU
seconds hold the training of a task model. Each one that ended, well or badly, is a line of `results/seeds.jsonl`,
with what `groupwise doctor` says of it; the same command leaves it out and goes on with the next. A line counts for
the configuration that it was measured with: where the experiment's file says something else by now, its runs are made
again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seeds_table
from resumable import append_lines, minutes, run_main
from seeds_run import fingerprint, measured

from groupwise.config import ConfigError
from groupwise.experiment.catalogue import find, shipped
from groupwise.runs import read_lines

HERE = Path(__file__).resolve().parent
LINES = HERE / "results" / "seeds.jsonl"
NEED_A_MODEL = (
    *("diffusion_prompts", "prompts", "source_000_innovations", "source_000_knights", "source_002", "source_003"),
    "source_004_recorded",
)
"""Experiments on a model folder or a file of one's own: there is none to measure them with."""
ORDER = (
    *("source_004", "language", "source_003_small", "selection_text", "restoration", "diffusion", "diffusion_jpeg"),
    *(
        "source_000",
        "source_000_restoration",
        "source_002_small",
        "selection",
        "guess_the_number",
        "source_004_rewards",
        "restoration_upscale",
        "restoration_codec",
        "restoration_flow",
        "restoration_words",
    ),
    *("language_countdown", "source_001_improved", "source_001_progressive"),
    *("source_003_smollm", "language_smollm", "source_000_smollm", "language_smollm_signs", "language_knights"),
    "source_000_study",
    *("source_004_advantage", "source_004_weights", "source_004_modes"),
    *("source_004_adaptive", "source_004_legacy_then", "source_004_shots"),
)
"""The cheapest first, roughly, so that a night that is too short leaves the dear ones."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the runs that are missing and writes the tables; returns the exit status: 1 where a run of those asked for
    ended badly.
    """
    asked = options().parse_args(arguments)
    names = asked.only or list(ORDER)
    wanted = [(name, seed) for name in names for seed in range(asked.first_seed, asked.first_seed + asked.seeds)]
    if not asked.table:
        made = {_place(row) for row in read_lines(asked.lines).rows}
        missing = [(name, seed) for name, seed in wanted if (name, seed, fingerprint(name)) not in made]
        print(
            f"{len(wanted) - len(missing)} of {len(wanted)} runs are there; {len(missing)} to make, each within"
            f" {asked.minutes:g} minutes",
            flush=True,
        )
        for place, (name, seed) in enumerate(missing, 1):
            row = measured(name, seed, asked.runs / f"{Path(name).stem}-{seed}", 60 * asked.minutes, keep=asked.keep)
            append_lines(asked.lines, [row])
            print(f"{place}/{len(missing)}  {seeds_table.line(row)}", flush=True)
    rows = current(read_lines(asked.lines).rows)
    table = asked.lines.with_suffix(".md")
    table.write_text(seeds_table.document(rows, ORDER, NEED_A_MODEL), encoding="utf-8")
    print(f"written to {table}")
    return int(any(row["exit"] != 0 for row in rows if (row["experiment"], row["seed"]) in wanted))


def current(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those lines whose experiment's file still sets what it set when they were measured.

    Args:
        rows: lines of `seeds.jsonl`.
    """
    return [
        row
        for row in rows
        if (Path(row["experiment"]).is_file() or row["experiment"] in shipped())
        and row["config"] == fingerprint(row["experiment"])
    ]


def _place(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["experiment"], row["seed"], row["config"]


def options() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        type=_experiment,
        metavar="NAME",
        help="an experiment, or a .toml file; may be repeated",
    )
    parser.add_argument("--seeds", type=_positive, default=10, help="how many")
    parser.add_argument(
        "--first-seed", type=_seed, default=10, help="the first of them; nothing was tuned on 10 and above"
    )
    parser.add_argument(
        "--minutes",
        type=minutes,
        default=60.0,
        help="a run that has not ended by then is ended, and that is its result",
    )
    parser.add_argument("--table", action="store_true", help="make no run, only the tables")
    parser.add_argument("--keep", action="store_true", help="keep the run folders")
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"), help="where the run folders go")
    parser.add_argument("--lines", type=Path, default=LINES, help="one JSON line a run; the tables stand beside it")
    return parser


def _experiment(text: str) -> str:
    if text in NEED_A_MODEL:
        raise argparse.ArgumentTypeError(f"{text} asks for a --model of yours; write one of {', '.join(ORDER)}")
    try:
        find(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seeds; write 1 to 1000")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed; write 0 to {2**31 - 1}")
    return int(text)


if __name__ == "__main__":
    run_main(main)
