"""How much the moving average of innovation 2.1 (source 000) reduces the variance of ratios, against its coefficient,
on ratios that a run recorded.

    groupwise train source_000 method=grpo controls=null track.rollouts_every=1 track.num_rollouts=128 --out runs/ratios
    python benchmarks/ema_variance.py runs/ratios

Reads `token_log_ratio` of `rollouts/step-*.jsonl`: how far the policy had moved from what it sampled, at the last
update of the step. The average is the one of `smoothing.kind = "ema"`, `r'_t = beta r_t + (1 - beta) r'_{t-1}`, `r'_0 =
r_1`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from groupwise.runs import read_run

BETAS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)


def ratios(path: Path) -> list[np.ndarray]:
    """Ratios of every member that a run recorded and that moved, decision by decision."""
    run = read_run(path)
    remarks: list[str] = []
    found = []
    for file in run.rollouts.values():
        for record in run.records(file, remarks):
            moved = [each for each in record.get("token_log_ratio") or [] if each is not None]
            if any(moved):
                found.append(np.exp(np.array(moved)))
    return found


def smoothed(ratio: np.ndarray, beta: float) -> np.ndarray:
    """The moving average along a member."""
    average = np.empty_like(ratio)
    last = ratio[0]
    for place, value in enumerate(ratio):
        last = average[place] = beta * value + (1 - beta) * last
    return average


def table(members: Sequence[np.ndarray]) -> str:
    """Variances over all decisions, and what is left of the move: the mean of `|r' - 1|` over that of `|r - 1|`."""
    raw = np.concatenate(members)
    before = raw.var()
    pairs = [(member[:-1] - raw.mean(), member[1:] - raw.mean()) for member in members if len(member) > 1]
    follows = (
        sum(float((one * other).sum()) for one, other in pairs) / sum(float((one**2).sum()) for one, _ in pairs)
        if pairs
        else float("nan")
    )
    lines = [
        (
            f"{len(members)} members, {len(raw)} decisions, {np.mean([len(each) for each in members]):.1f} a member;"
            f" variance of the ratio {before:.4g}, correlation of a ratio with the next {follows:.2f}\n"
        ),
        (
            "| beta | variance of the average | of the raw variance | a constant beta on independent ratios: beta / (2"
            " - beta) | outside 1 +- .2 |"
        ),
        "|---|---|---|---|---|",
    ]
    for beta in BETAS:
        values = np.concatenate([smoothed(each, beta) for each in members])
        outside = float((np.abs(values - 1) > 0.2).mean())
        lines.append(
            f"| {beta} | {values.var():.4g} | {values.var() / before:.3f} | {beta / (2 - beta):.3f} | {outside:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    for path in parser.parse_args().runs:
        members = ratios(path)
        if not members:
            print(
                f"{path}: no member with a ratio other than 1; record some with more than one update a batch and"
                " track.rollouts_every = 1"
            )
            continue
        print(f"{path.name}: {table(members)}\n")


if __name__ == "__main__":
    main()
