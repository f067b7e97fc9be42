"""Run folders written by hand: with just what a test needs, with hostile texts, and a large one as training would have
written it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from groupwise.runs import Run, read_run

NASTY = (
    "</script><script>window.pwned = 1</script><!-- <img src=x onerror=pwned()> & \x00\x1b[31m \u202eevil \u2028 \ud800"
    " 👩‍👩‍👧 العربية"
)
"""What a model may write: the end of a script, markup, control characters, a lone surrogate, and writing from right to
left.
"""


def write_run(
    folder: Path,
    *,
    steps: int = 1,
    rows: list[dict[str, Any]] | None = None,
    members: list[dict[str, Any]] | None = None,
    config: Any = None,
) -> Run:
    """A run folder with just this in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rollouts").mkdir(exist_ok=True)
    metric_rows = (
        rows if rows is not None else [{"step": step + 1, "stage": "main", "reward": 0.5} for step in range(steps)]
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metric_rows))
    (folder / "config.json").write_text(json.dumps({"name": "written", "seed": 0} if config is None else config))
    if members is not None:
        (folder / "rollouts" / "step-1.jsonl").write_text("".join(json.dumps(member) + "\n" for member in members))
    return read_run(folder)


def write_large_run(folder: Path, *, steps: int = 5000, members: int = 64, group_size: int = 16) -> Run:
    """A run of many steps with every member of every step recorded: some groups flat, some all wrong, a spike in one
    step.
    """
    draw = random.Random(0)
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"name": "large", "seed": 0, "method": "grpo"}))
    names = [
        f"{family}/{number}" for family in ("rewards", "eval", "seconds", "settings", "own") for number in range(10)
    ]
    words = ["so", "the", "ball", "moves", "from", "three", "to", "five", "and", "then"]
    with (folder / "metrics.jsonl").open("w") as metrics:
        for step in range(1, steps + 1):
            row = {
                "step": step,
                "stage": "grpo",
                "reward": step / steps,
                "loss": draw.gauss(0, 1),
                "grad_norm": 1000.0 if step == 1234 else draw.random(),
            }
            row |= {
                "groups/flat": draw.random(),
                **{f"ratio/p{level}": 1 + (level - 50) / 200 * draw.random() for level in (1, 5, 50, 95, 99)},
            }
            metrics.write(json.dumps(row | {name: draw.random() for name in names}) + "\n")
            with (folder / "rollouts" / f"step-{step}.jsonl").open("w") as file:
                for member in range(members):
                    group = member // group_size
                    kind = (step + group) % 10
                    reward = 0.0 if kind == 0 else 1.0 if kind == 1 else float(draw.random() < step / steps)
                    tokens = [draw.choice(words) for _ in range(12)]
                    record = {
                        "prompt": f"where is the ball, {step} {group}?",
                        "key": f"{step}-{group}",
                        "text": " ".join(tokens),
                        "tokens": tokens,
                    }
                    record |= {
                        "token_log_prob": [round(-draw.random(), 3) for _ in tokens],
                        "group": group,
                        "rewards": {"correct": reward},
                        "reward": reward,
                    }
                    file.write(
                        json.dumps(record | {"advantage": reward - 0.5, "num_decisions": 12, "log_ratio": 0.0}) + "\n"
                    )
    return read_run(folder)
