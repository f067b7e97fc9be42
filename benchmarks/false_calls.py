"""How often `groupwise compare` calls a difference real, by simulation: between equal variants, where at most 5 % of
tables may do so, and for one variant that is better.

Tables of variants, seeds and prompts are drawn from eight worlds. With pairs, the runs of one seed share half of their
luck; without, they share nothing but the prompts. The p-values are those of `groupwise_look.compare.statistics`, and
the variance is that of `groupwise_look.compare.statistics.crossed`, computed for many tables at a time.

    python benchmarks/false_calls.py [--tables 4000] [--out benchmarks/results/false_calls.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from groupwise_look.compare.statistics import LEVEL, sign_flips

SEEDS = (3, 5, 10)
VARIANTS = (2, 4, 6)
SIDES = ("pairs", "no pairs")
_CHUNK = 200


@dataclass(frozen=True)
class Drawn:
    """What a world draws its scores from.

    Args:
        random: the generator.
        shape: tables, variants, seeds, prompts.
        better: `[V, 1, 1]`, 1 for a variant that is better and 0 for the others.
        paired: whether runs of one seed share the luck of the seed.
    """

    random: np.random.Generator
    shape: tuple[int, int, int, int]
    better: np.ndarray
    paired: bool

    def normal(self, *, variants: bool = False, seeds: bool = False, prompts: bool = False) -> np.ndarray:
        """Draws standard normal numbers that differ between the named axes."""
        num_tables, *sizes = self.shape
        chosen = (size if own else 1 for size, own in zip(sizes, (variants, seeds, prompts), strict=True))
        return self.random.standard_normal((num_tables, *chosen), dtype=np.float32)

    def luck(self) -> np.ndarray:
        """Draws one standard normal number a run; half of its variance is the seed's where runs are paired."""
        own = self.normal(variants=True, seeds=True)
        return (own + self.normal(seeds=True)) / np.float32(2**0.5) if self.paired else own

    def right(self, logits: np.ndarray) -> np.ndarray:
        """Draws answers, right (1) or wrong (0)."""
        return (self.random.random(self.shape, dtype=np.float32) < special.expit(logits)).astype(np.float32)

    def noise(self) -> np.ndarray:
        return self.random.standard_normal(self.shape, dtype=np.float32)


def seeds_differ(drawn: Drawn) -> np.ndarray:
    return drawn.right(1.5 * drawn.normal(prompts=True) + 0.5 * drawn.luck() + drawn.better)


def near_one(drawn: Drawn) -> np.ndarray:
    return drawn.right(4 + drawn.normal(prompts=True) + 0.3 * drawn.luck() + 1.5 * drawn.better)


def noisy_scores(drawn: Drawn) -> np.ndarray:
    return 0.3 * drawn.noise() + 0.06 * drawn.better


def lognormal_seeds(drawn: Drawn) -> np.ndarray:
    return 0.05 * np.exp(drawn.luck()) + 0.1 * drawn.noise() + 0.15 * drawn.better


def some_collapse(drawn: Drawn) -> np.ndarray:
    luck = drawn.luck()
    # A standard normal number lies below -1.28 once in ten draws.
    return 0.02 * luck - 0.5 * (luck < -1.2816) + 0.3 * drawn.noise() + 0.2 * drawn.better


def trick(drawn: Drawn) -> np.ndarray:
    return np.where(drawn.luck() + 2 * drawn.better > 0, 0.98, 0.55) + 0.02 * drawn.noise()


def prompts_take_sides(drawn: Drawn) -> np.ndarray:
    own = 0.2 * drawn.normal(variants=True, prompts=True) + 0.02 * drawn.luck()
    return own + 0.2 * drawn.noise() + 0.08 * drawn.better


@dataclass(frozen=True)
class World:
    """Where tables come from.

    Args:
        draw: returns scores, `[N, V, S, P]`.
        gain: the better variant's advantage, in words.
        num_prompts: of a table.
    """

    draw: Callable[[Drawn], np.ndarray]
    gain: str
    num_prompts: int = 256


WORLDS: Mapping[str, World] = {
    "right or wrong, seeds differ": World(seeds_differ, "1 on the logit"),
    "right or wrong, nearly all right": World(near_one, "1.5 on the logit"),
    "only noise of single scores": World(noisy_scores, "a fifth of the noise"),
    "lognormal seeds": World(lognormal_seeds, "1.4 deviations of a seed"),
    "one run in ten collapses": World(some_collapse, "two fifths of the collapse"),
    "find the trick or not, 16 prompts": World(trick, "98 % of runs find it, not 50 %", 16),
    "find the trick or not, 256 prompts": World(trick, "98 % of runs find it, not 50 %"),
    "prompts take sides": World(prompts_take_sides, "two fifths of a prompt's side"),
}


def called(differences: np.ndarray) -> np.ndarray:
    """Returns whether a table calls the difference of each variant from the first real.

    Args:
        differences: `[N, K, S, P]`.

    Returns:
        `[N, K]` booleans.
    """
    return _holm(np.maximum(_t_test(differences), sign_flips(differences.mean(-1, dtype=np.float64)))) < LEVEL


def _t_test(table: np.ndarray) -> np.ndarray:
    """Computes `p_value(mean, crossed(table))` of every table at once."""
    num_seeds, num_prompts = table.shape[-2:]
    size = num_seeds * num_prompts
    by_seed, by_prompt = table.mean(-1, dtype=np.float64), table.mean(-2, dtype=np.float64)
    mean = by_seed.mean(-1)
    seeds = num_prompts * by_seed.var(-1) * num_seeds
    prompts = num_seeds * by_prompt.var(-1) * num_prompts
    total = np.einsum("...sp,...sp->...", table, table, dtype=np.float64) - size * mean**2
    noise = np.maximum(total - seeds - prompts, 0) / ((num_seeds - 1) * (num_prompts - 1))
    seeds, prompts = seeds / (num_seeds - 1), prompts / (num_prompts - 1)
    seed_part, prompt_part = np.maximum(seeds, noise) / size, np.maximum(prompts - noise, 0) / size
    variance = seed_part + prompt_part
    distance = np.abs(mean) / np.sqrt(variance)
    parts = ((seed_part, num_seeds - 1), (prompt_part, num_prompts - 1))
    return sum(part * 2 * special.stdtr(degrees, -distance) for part, degrees in parts) / variance


def _holm(chances: np.ndarray) -> np.ndarray:
    """Computes `holm` of every table at once."""
    order = chances.argsort(-1)
    steps = np.take_along_axis(chances, order, -1) * np.arange(chances.shape[-1], 0, -1)
    corrected = np.empty_like(chances)
    np.put_along_axis(corrected, order, np.maximum.accumulate(steps, -1), -1)
    return corrected


def measure(
    world: World, *, paired: bool, better: bool, num_tables: int, seed: int = 0
) -> dict[tuple[int, int], float]:
    """Measures how often a table calls a difference real.

    Args:
        world: where the tables come from.
        paired: whether runs of one seed share the luck of the seed.
        better: whether the second variant is better than the others; only its calls count then.
        num_tables: the number of tables.

    Returns:
        (variants, seeds) -> share of tables. Small tables are parts of the large ones.
    """
    random = np.random.default_rng([seed, paired, better])
    gains = np.zeros((max(VARIANTS), 1, 1), dtype=np.float32)
    gains[1] = better
    counts = dict.fromkeys(((variants, seeds) for variants in VARIANTS for seeds in SEEDS), 0)
    for start in range(0, num_tables, _CHUNK):
        shape = (min(_CHUNK, num_tables - start), max(VARIANTS), max(SEEDS), world.num_prompts)
        scores = world.draw(Drawn(random, shape, gains, paired)).astype(np.float32)
        differences = scores[:, 1:] - scores[:, :1]
        for num_variants, num_seeds in counts:
            calls = called(differences[:, : num_variants - 1, :num_seeds])
            counts[num_variants, num_seeds] += int((calls[:, 0] if better else calls.any(-1)).sum())
    return {cell: count / num_tables for cell, count in counts.items()}


def table(results: Mapping[str, Mapping[str, Mapping[str, float]]], kind: str) -> str:
    """Returns one of the guide's tables in Markdown.

    Args:
        results: world -> `false` or `power`, with pairs and without -> `VARIANTS x SEEDS` -> share.
        kind: `false` or `power`.
    """
    heads = [f"{seeds} seeds, {side}" for seeds in SEEDS for side in SIDES]
    digits = 3 if kind == "false" else 2
    lines = [f"| world | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, cells in results.items():
        texts = [
            " / ".join(
                f"{cells[f'{kind}, {side}'][f'{variants} x {seeds}']:.{digits}f}".removeprefix("0")
                for variants in VARIANTS
            )
            for seeds in SEEDS
            for side in SIDES
        ]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    worlds: dict[str, dict[str, dict[str, float]]] = {}
    for name, world in WORLDS.items():
        worlds[name] = {
            f"{'power' if better else 'false'}, {side}": {
                f"{variants} x {seeds}": share
                for (variants, seeds), share in measure(
                    world, paired=side == "pairs", better=better, num_tables=asked.tables // (4 if better else 1)
                ).items()
            }
            for better in (False, True)
            for side in SIDES
        }
    for kind in ("false", "power"):
        print(table(worlds, kind), end="\n\n", flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps({"tables": asked.tables, "worlds": worlds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
