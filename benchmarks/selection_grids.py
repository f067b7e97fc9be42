"""The tables of `docs/guide/selection_findings.md`, from what `groupwise compare source_004_...` left in folders.

groupwise compare source_004_rewards --out runs/source_004_rewards
groupwise compare source_004_rewards advantage.kind=centred \\
    --vary domain.rewards.vqa.mode.kind=hard_plus_soft,hard_plus_soft_v2,legacy --out runs/source_004_gap
groupwise compare source_004_rewards domain.rewards.vqa.mode.kind=legacy \\
    --vary domain.model.num_layers=1,2,3 --out runs/source_004_layers

python benchmarks/selection_grids.py runs/source_004_* [--out benchmarks/results/source_004.json]
python benchmarks/selection_grids.py runs/source_004_rewards --against domain.rewards.vqa.mode.kind=hard_plus_soft

Below the table of a grid stand the differences for single numbers of examples, seed by seed, with intervals over seeds
by the bootstrap of `groupwise compare`, and between what the seeds of a variant lie.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selection_seeds import differences, ranges, run_folders

from groupwise.checkpoint import write_file
from groupwise.config import ConfigError

DIGITS = 6
"""So that a table may round them to three."""


def gathered(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a grid's `results.json` says of each variant: seeds, and held-out VQA accuracy with its interval and
    difference from the first.

    Args:
        results: what the file holds.
    """

    def ends(estimate: Mapping[str, Any] | None) -> list[float] | None:
        return None if estimate is None else [round(estimate[name], DIGITS) for name in ("mean", "low", "high")]

    return [
        {
            "variant": row["variant"],
            "seeds": row["seeds"],
            "before": round(row["before"], DIGITS),
            "after": ends(row["after"]),
            "difference": ends(row["difference"]),
            "end": {name.rpartition("/")[2]: round(value, DIGITS) for name, value in row["end"].items()},
        }
        for row in results["rows"]
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """One table.

    Args:
        rows: what `gathered` gave.
    """
    extra = list(rows[0]["end"])
    heads = ["variant", "seeds", "1 to 4", "95 %", "difference", "95 %", *extra]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        mean, low, high = row["after"]
        gap = row["difference"]
        cells = [f"`{row['variant']}`", str(len(row["seeds"])), f"{mean:.3f}", f"{low:.3f} to {high:.3f}"]
        cells += ["", ""] if gap is None else [f"{gap[0]:+.3f}", f"{gap[1]:+.3f} to {gap[2]:+.3f}"]
        lines.append("| " + " | ".join([*cells, *(f"{value:.3f}" for value in row["end"].values())]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Prints a table a grid, and writes all of them where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", metavar="VARIANT", help="what the others are compared with; the first by default")
    arguments = parser.parse_args()
    found: dict[str, Any] = (
        json.loads(arguments.out.read_text(encoding="utf-8"))
        if arguments.out is not None and arguments.out.is_file()
        else {}
    )
    for folder in arguments.folders:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        # By the folder: one experiment, changed on the command line, makes several grids.
        name = folder.resolve().name.removeprefix("compare-")
        found[name] = gathered(results)
        runs = run_folders(folder, results)
        try:
            tables = [differences(runs, results, arguments.against), ranges(runs, results["metric"])]
        except ConfigError as error:
            sys.exit(str(error))
        print("\n\n".join([name, markdown(found[name]), *map("\n".join, tables)]), end="\n\n")
    if arguments.out is not None:
        write_file(arguments.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
