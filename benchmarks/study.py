"""The tables of `docs/guide/study.md`, from what `groupwise compare` left in a folder.

groupwise compare source_000 --out runs/study_language
groupwise compare source_000_restoration --out runs/study_restoration
python benchmarks/study.py runs/study_language runs/study_restoration
python benchmarks/study.py --stability runs/study_language    # which method's seeds end closest together
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


def stability(results: Mapping[str, Any]) -> str:
    """How far each method's seeds end from each other, the closest first: the standard deviation over seeds with its 95
    % interval (of normal scores), and the `p` of an F test of its variance against GRPO's, times the number of
    comparisons.

    Args:
        results: what `results.json` holds.

    Example:
        >>> def row(name, variance):
        ...     spread = {"seeds": variance / 5, "prompts": 0.0, "num_seeds": 5, "num_prompts": 9}
        ...     return {"variant": f"method={name}", "seeds": [0, 1, 2, 3, 4], "after": {"mean": 0.9, "spread": spread}}
        >>> print(stability({"rows": [row("grpo", 0.04), row("ema", 0.01)]}))
        | method | after | standard deviation over seeds | 95 % interval | p against `grpo`, corrected | seeds |
        |---|---|---|---|---|---|
        | `ema` | 0.900 | 0.100 | 0.060 to 0.287 | 0.208 | 5 |
        | `grpo` | 0.900 | 0.200 | 0.120 to 0.575 |  | 5 |
    """
    from scipy.stats import chi2, f

    lines = [
        "| method | after | standard deviation over seeds | 95 % interval | p against `grpo`, corrected | seeds |",
        "|---|---|---|---|---|---|",
    ]
    # What the comparison holds is the variance of the mean.
    variances = {row["variant"]: row["after"]["spread"]["seeds"] * len(row["seeds"]) for row in results["rows"]}
    first, others = results["rows"][0], len(results["rows"]) - 1
    for row in sorted(results["rows"], key=lambda row: variances[row["variant"]]):
        variance, free = variances[row["variant"]], len(row["seeds"]) - 1
        low, high = ((free * variance / chi2.ppf(share, free)) ** 0.5 for share in (0.975, 0.025))
        chance = ""
        if row is not first:
            ratio, against = variance / variances[first["variant"]], len(first["seeds"]) - 1
            chance = f"{min(1.0, 2 * others * min(f.cdf(ratio, free, against), f.sf(ratio, free, against))):.3f}"
        name = row["variant"].partition("=")[2]
        lines.append(
            f"| `{name}` | {row['after']['mean']:.3f} | {variance**0.5:.3f} | {low:.3f} to {high:.3f} | {chance} |"
            f" {len(row['seeds'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "places", type=Path, nargs="+", metavar="PLACE", help="what compare left: its folder, or its results.json"
    )
    parser.add_argument("--stability", action="store_true", help="the spread over seeds in place of the scores")
    asked = parser.parse_args()
    for place in asked.places:
        results = json.loads((place / "results.json" if place.is_dir() else place).read_text(encoding="utf-8"))
        prompts = results.get("evaluated_on", "held-out prompts")
        print(
            f"{results['experiment']}, {results['metric']} on"
            f" {prompts}\n\n{(stability if asked.stability else markdown)(results)}\n"
        )


if __name__ == "__main__":
    main()
