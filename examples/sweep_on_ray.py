"""A sweep on Ray: every learning rate with every method is a task of one CPU, and the best one is printed.

    pip install '.[language,ray]'
    python examples/sweep_on_ray.py OUT

`groupwise compare` does this on one machine with paired seeds and intervals.
"""

import sys
from pathlib import Path
from typing import Any

import ray

EXPERIMENT = "language"
GRID = [{"method": method, "optimiser.learning_rate": rate} for method in ("grpo", "dapo") for rate in (2e-4, 5e-4)]


@ray.remote(num_cpus=1)
def run(experiment: str, changes: dict[str, Any], out: str) -> dict[str, Any]:
    """Trains one point of the grid; a point that was trained before is read, not trained again."""
    import groupwise

    done = groupwise.train(experiment, out=out, resume=True, controls=False, **changes)
    return {"out": out, "changes": changes, "before": done.summary["before"], "after": done.summary["after"]}


def sweep(experiment: str, grid: list[dict[str, Any]], out: str) -> list[dict[str, Any]]:
    """Trains the grid and returns its points, the best held-out score first."""
    tasks = [
        run.remote(experiment, changes, str(Path(out).resolve() / str(place))) for place, changes in enumerate(grid)
    ]
    return sorted(ray.get(tasks), key=lambda point: -point["after"])


if __name__ == "__main__":
    ray.init()
    for point in sweep(EXPERIMENT, GRID, sys.argv[1]):
        print(f"{point['after']:.3f}  {point['changes']}  {point['out']}")
