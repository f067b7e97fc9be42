"""The tables of `docs/guide/study.md`, from what `groupwise compare` left in a folder.

groupwise compare source_000 --out runs/study_language
groupwise compare source_000_restoration --out runs/study_restoration
python benchmarks/study.py runs/study_language runs/study_restoration
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def markdown(results: Mapping[str, Any]) -> str:
    """One table.

    Args:
        results: what `results.json` holds.
    """
    extra = list(results["rows"][0]["end"])
    heads = [
        "method",
        "before",
        "after",
        "difference",
        "95 % interval",
        "p, corrected",
        "seeds needed",
        "gain a second",
        "seconds of training",
        "seeds",
        *extra,
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in results["rows"]:
        gap, chance = row["difference"], row["p_value"]
        sure = chance is not None and chance < results["level"]
        needed = "" if gap is None or sure else str(row["seeds_needed"] or "over 1000")
        cells = [
            f"`{row['variant'].removeprefix('method=')}`",
            f"{row['before']:.3f}",
            f"{row['after']['mean']:.3f}",
            "" if gap is None else f"{gap['mean']:+.3f}{' *' if sure else ''}",
            "" if gap is None else f"{gap['low']:+.3f} to {gap['high']:+.3f}",
            "" if chance is None else f"{chance:.3f}" if chance >= 0.001 else "< .001",
            needed,
            "" if row["per_second"] is None else f"{row['per_second']['mean']:.3f}",
            f"{row['training_seconds']:.1f}",
            str(len(row["seeds"])),
            *(f"{row['end'][name]:.3f}" for name in extra),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    missing = [f"\nNot in the table: {place} ({why.splitlines()[0]})" for place, why in results["missing"].items()]
    return "\n".join([*lines, *missing])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        print(f"{results['experiment']}, held-out {results['metric']}\n\n{markdown(results)}\n")


if __name__ == "__main__":
    main()
