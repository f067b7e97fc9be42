"""How much the moving average of innovation 2.1 (source 000) reduces the variance of ratios, against its coefficient,
on ratios that a run recorded.

    for seed in 10 11 12; do groupwise train source_000 seed=$seed method=grpo --no-controls track.rollouts_every=1 \\
        track.num_rollouts=128 --out runs/ratios-$seed; done
    python benchmarks/ema_variance.py runs/ratios-*

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


def variances(members: Sequence[np.ndarray]) -> dict[float, tuple[float, float]]:
    """Returns of each coefficient the variance of the average over that of the raw ratio, and the share of averages
    outside 1 +- .2.
    """
    before = np.concatenate(members).var()
    rows = {}
    for beta in BETAS:
        values = np.concatenate([smoothed(member, beta) for member in members])
        rows[beta] = float(values.var() / before), float((np.abs(values - 1) > 0.2).mean())
    return rows


def summary(name: str, members: Sequence[np.ndarray]) -> str:
    """Returns what the ratios of a run are: how many, their variance, whether one follows the one before it, and the
    variance of those of the first decision and of each later one.
    """
    raw = np.concatenate(members)
    pairs = [(member[:-1] - raw.mean(), member[1:] - raw.mean()) for member in members if len(member) > 1]
    follows = (
        sum(float((first * second).sum()) for first, second in pairs)
        / sum(float((first**2).sum()) for first, _ in pairs)
        if pairs
        else float("nan")
    )
    longest = max(map(len, members))
    by_place = [
        np.array([member[place] for member in members if len(member) > place]).var() for place in range(longest)
    ]
    return (
        f"{name}: {len(members)} members, {len(raw)} decisions, {len(raw) / len(members):.1f} a member (up to"
        f" {longest}); variance of the ratio {raw.var():.4g}, correlation of a ratio with the next {follows:.2f};"
        f" variance by decision {', '.join(f'{value:.3f}' for value in by_place)}"
    )


def table(runs: Sequence[dict[float, tuple[float, float]]]) -> str:
    """Returns a row a coefficient: the lowest and the highest of the runs."""
    lines = [
        "| beta | variance of the average, of the raw one | a constant beta on independent ratios: beta / (2 - beta) |"
        " share outside 1 +- .2 |",
        "|---|---|---|---|",
    ]
    for beta in BETAS:
        ranges = [sorted(run[beta][column] for run in runs) for column in (0, 1)]
        cells = [" to ".join(f"{value:.3f}" for value in dict.fromkeys((values[0], values[-1]))) for values in ranges]
        lines.append(f"| {beta} | {cells[0]} | {beta / (2 - beta):.3f} | {cells[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    measured = []
    for path in parser.parse_args().runs:
        members = ratios(path)
        if not members:
            print(
                f"{path}: no member with a ratio other than 1; record some with more than one update a batch and"
                " track.rollouts_every = 1"
            )
            continue
        print(summary(path.name, members))
        measured.append(variances(members))
    if measured:
        print(f"\nOver {len(measured)} runs, the lowest and the highest:\n\n{table(measured)}")


if __name__ == "__main__":
    main()
