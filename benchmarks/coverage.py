"""How often the intervals of `groupwise compare` hold the truth, by simulation.

Tables of paired differences, seeds x held-out prompts, are drawn from populations whose mean is known; from each an
interval is made as `groupwise_look.compare.statistics.bootstrap` makes it, and one from the plain percentiles of the
same resamples.

    python benchmarks/coverage.py [--tables 1000]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from groupwise_look.compare.statistics import _crossed, bootstrap

Draw = Callable[[int, int, np.random.Generator], np.ndarray]


def seeds_differ(num_seeds: int, num_prompts: int, random: np.random.Generator) -> np.ndarray:
    """Runs of other seeds are other models, by 5 points."""
    return (
        random.normal(0, 0.05, (num_seeds, 1))
        + random.normal(0, 0.1, (1, num_prompts))
        + random.normal(0, 0.3, (num_seeds, num_prompts))
    )


def prompts_differ(num_seeds: int, num_prompts: int, random: np.random.Generator) -> np.ndarray:
    """Some prompts gain and others lose, the same with every seed."""
    return (
        random.normal(0, 0.005, (num_seeds, 1))
        + random.normal(0, 0.3, (1, num_prompts))
        + random.normal(0, 0.1, (num_seeds, num_prompts))
    )


def noise(num_seeds: int, num_prompts: int, random: np.random.Generator) -> np.ndarray:
    """Neither: single scores are noisy."""
    return random.normal(0, 0.3, (num_seeds, num_prompts))


def right_or_wrong(num_seeds: int, num_prompts: int, random: np.random.Generator) -> np.ndarray:
    """Answers right or wrong under two methods that are equally good, with prompts of their own difficulty and seeds of
    their own luck.
    """
    hard, other = random.normal(0, 1.5, (1, num_prompts)), random.normal(0, 0.7, (1, num_prompts))
    luck = random.normal(0, 0.5, (2, num_seeds, 1))
    chances = [1 / (1 + np.exp(-(hard + side * other / 2 + luck[place]))) for place, side in enumerate((-1, 1))]
    right = [random.random((num_seeds, num_prompts)) < chance for chance in chances]
    return right[1].astype(float) - right[0].astype(float)


def some_seeds_fail(num_seeds: int, num_prompts: int, random: np.random.Generator) -> np.ndarray:
    """One run in ten collapses and loses half: nothing that a handful of seeds can show when none of them did."""
    failed = random.random((num_seeds, 1)) < 0.1
    return (
        0.05 - 0.5 * failed + random.normal(0, 0.02, (num_seeds, 1)) + random.normal(0, 0.3, (num_seeds, num_prompts))
    )


KINDS: Mapping[str, Draw] = {
    "seeds differ": seeds_differ,
    "prompts differ": prompts_differ,
    "noise of single scores": noise,
    "right or wrong": right_or_wrong,
}
WARNING: Mapping[str, Draw] = {"one seed in ten fails": some_seeds_fail}


def coverage(
    kind: str, num_seeds: int, *, num_prompts: int, num_tables: int, level: float = 0.95
) -> tuple[float, float]:
    """The share of tables whose interval holds the population's mean: ours, and plain percentiles.

    Args:
        kind: of the population; all have a mean of 0.
        num_seeds, num_prompts: of a table.
        num_tables: how many.
        level: that is asked for.
    """
    random = np.random.default_rng([num_seeds, num_prompts])
    draw = {**KINDS, **WARNING}[kind]
    held = plain = 0
    for _ in range(num_tables):
        table = draw(num_seeds, num_prompts, random)
        keys = [str(place) for place in range(num_prompts)]
        found = bootstrap(
            {seed: dict(zip(keys, row.tolist(), strict=True)) for seed, row in enumerate(table)},
            level=level,
            num_resamples=1000,
        )
        held += found.low <= 0 <= found.high
        low, high = np.quantile(_crossed(table, 1000, random), [(1 - level) / 2, (1 + level) / 2])
        plain += low <= 0 <= high
    return held / num_tables, plain / num_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--prompts", type=int, default=256)
    asked = parser.parse_args()
    print(
        f"{asked.tables} tables of each kind, {asked.prompts} prompts; share of 95 % intervals that hold the truth:"
        " ours (plain percentiles)\n"
    )
    print("| what differs | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|")
    for kind in (*KINDS, *WARNING):
        shares = [coverage(kind, number, num_prompts=asked.prompts, num_tables=asked.tables) for number in (3, 5, 10)]
        print(f"| {kind} | " + " | ".join(f"{held:.3f} ({plain:.3f})" for held, plain in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
