"""Several seeds of a selection experiment as one table: `python benchmarks/selection.py RUN RUN ... [--out FILE]`.

    python benchmarks/seeds.py --only selection_text --keep --lines runs/lines.jsonl --runs runs    # the ten runs
    python benchmarks/selection.py runs/selection_text-1?

Baselines do not depend on the seed. The rows of the policy (`ours`, and where the task model is asked, `ours, as
exported`) are means over seeds, beside the lowest and the highest; `lead` is the mean difference to each baseline,
beside the lowest lower end of the seeds' paired intervals, which redraw what the experiment's table redraws.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from groupwise.checkpoint import write_file


def gathered(runs: list[Path]) -> dict[str, Any]:
    """Means over seeds of what `tables/` of each run holds.

    Args:
        runs: run folders, one a seed.
    """
    tables = [
        {name: json.loads((run / "tables" / f"{name}.json").read_text()) for name in ("baselines", "lead")}
        for run in runs
    ]
    rows: dict[str, Any] = {
        row[0]: [cell["mean"] for cell in row[1:]]
        for row in tables[0]["baselines"]["rows"]
        if not row[0].startswith("ours")
    }
    ours = {
        row[0]: [_means(table["baselines"], row[0]) for table in tables]
        for row in tables[0]["baselines"]["rows"]
        if row[0].startswith("ours")
    }
    names = [row[0] for row in tables[0]["lead"]["rows"]]
    lead = {
        name: [next(row[1:] for row in each["lead"]["rows"] if row[0] == name) for each in tables] for name in names
    }
    return {
        "columns": tables[0]["baselines"]["columns"][1:],
        "baselines": rows,
        "ours": {
            name: {
                "mean": _over(seeds, _mean),
                "lowest": _over(seeds, min),
                "highest": _over(seeds, max),
                "seeds": seeds,
            }
            for name, seeds in ours.items()
        },
        "lead": {
            name: {
                "mean": _over([[cell["mean"] for cell in row] for row in found], _mean),
                "low": _over([[cell["low"] for cell in row] for row in found], min),
            }
            for name, found in lead.items()
        },
        "seconds": [json.loads((run / "summary.json").read_text())["seconds"] for run in runs],
    }


def _means(table: dict[str, Any], name: str) -> list[float]:
    return [cell["mean"] for cell in next(row for row in table["rows"] if row[0] == name)[1:]]


def _over(rows: list[list[float]], what: Any) -> list[float]:
    return [what(column) for column in zip(*rows, strict=True)]


def _mean(values: Any) -> float:
    return sum(values) / len(values)


def main() -> None:
    """Prints the table, and writes it where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = gathered(arguments.runs)
    print("| chosen by | " + " | ".join(found["columns"]) + " |\n|---|" + "---|" * len(found["columns"]))
    for name, values in found["baselines"].items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    for name, scores in found["ours"].items():
        cells = [
            f"{mean:.3f} ({low:.3f} to {high:.3f})"
            for mean, low, high in zip(scores["mean"], scores["lowest"], scores["highest"], strict=True)
        ]
        print(f"| {name}, {len(arguments.runs)} seeds | " + " | ".join(cells) + " |")
    for name, lead in found["lead"].items():
        print(
            f"| lead over {name} | "
            + " | ".join(f"{mean:+.3f} (> {low:+.3f})" for mean, low in zip(lead["mean"], lead["low"], strict=True))
            + " |"
        )
    if arguments.out is not None:
        write_file(arguments.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
