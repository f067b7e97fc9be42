"""`summary.json`: the result of a run in seven entries."""

from __future__ import annotations

from typing import Any

from groupwise.training.progress import Progress


def summarise(progress: Progress, metric: str | None, baseline: float | None, seed: int) -> dict[str, Any]:
    """Returns the summary: `metric`, `before`, `after`, `baseline`, `seconds` by part, `steps`, `seed`.

    `before` is the score at the start of the first stage that samples, `after` the score at the end, `baseline` the
    score of the first control.

    Args:
        progress: the counters at the end of the run.
        metric: the deciding metric, if there is one.
        baseline: the score of the first control, if there is one.

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
