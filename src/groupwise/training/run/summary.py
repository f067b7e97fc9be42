"""`summary.json`: the result of a run in seven entries."""

from __future__ import annotations

from typing import Any

from groupwise.training.progress import Progress


def summarise(progress: Progress, metric: str | None, baseline: float | None, seed: int) -> dict[str, Any]:
    """`metric`, `before`, `after`, `baseline`, `seconds` by part, `steps`, `seed`.

    `before` is the score where the first stage that samples began, `after` the one at the end, `baseline` that of the
    first control.

    Args:
        progress: at the end.
        metric: the deciding metric, if there is one.
        baseline: the first control's score.
        seed: of the run.

    Example:
        >>> list(summarise(Progress(), None, None, 0))
        ['metric', 'before', 'after', 'baseline', 'seconds', 'steps', 'seed']
    """
    return {
        "metric": metric,
        "before": progress.before.get(metric) if metric else None,
        "after": progress.latest.get(metric) if metric else None,
        "baseline": baseline,
        "seconds": {part: round(seconds, 3) for part, seconds in progress.seconds.items()},
        "steps": progress.step,
        "seed": seed,
    }
