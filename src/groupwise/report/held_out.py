"""What a run made of the prompts of its evaluations, before training and at its end: the records of two evaluations,
prompt by prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from groupwise.report.groups import group_key
from groupwise.report.members import conversation, member, number, shortened
from groupwise.report.pictures import Pictures
from groupwise.runs import Run, reward_weights, score, split_metric

_SHOWN = ("text", "messages", "image", "demonstrations")
"""A record with one of these shows what the model made; an evaluation keeps that of its first prompts, and of the
others only the rewards.
"""


def held_out(run: Run, *, text_bytes: int, picture_bytes: int) -> dict[str, Any] | None:
    """The prompts of one run's evaluations, in the shape of `browse`: each is a group, and its members are what was
    made of it before and after.

    Args:
        run: of which.
        text_bytes, picture_bytes: what they may take of the page.

    Returns:
        as `browse` does, each member with `when`, each group with its `mode`, and `held`: `prompts` (what they are
        called), the `metric` that decides, `before` and `after` (the steps of the two
        evaluations; one of them where there was one) and `recorded` (prompts of an evaluation); `None` where no record
        shows anything.
    """
    steps = _compared(run)
    metric = str((run.summary or {}).get("metric") or "")
    parts: dict[str, None] = {}
    groups: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    keys: set[Any] = set()
    for when, step in steps.items():
        for record in run.records(run.evaluations[step], []):
            keys.add(group_key(record))
            if isinstance(named := record.get("rewards"), Mapping):
                parts.update(dict.fromkeys(map(str, named)))
            if any(record.get(name) is not None for name in _SHOWN):
                groups.setdefault((str(record.get("mode", "")), str(group_key(record))), []).append((when, record))
    if not groups:
        return None
    decides, name = split_metric(metric, (record for members in groups.values() for _, record in members))
    weights = _weights(run)
    pictures, kept, left = Pictures(picture_bytes), [], text_bytes
    for (mode, key), records in sorted(groups.items(), key=lambda each: each[0][0] != decides):
        prompt = records[0][1].get("prompt")
        shown: Any = conversation(prompt) if isinstance(prompt, list) else shortened("" if prompt is None else prompt)
        members = [
            {**member(record, list(parts), run.path, pictures), "r": _score(record, name, weights), "when": when}
            for when, record in records
        ]
        found = {"group": shortened(key, 80), "mode": mode, "prompt": shown, "members": members}
        size = len(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= left:
            left -= size
            kept.append(found)
    return {
        "parts": list(parts),
        "groups": kept,
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "held": {
            "prompts": run.evaluated_on.prompts,
            "metric": metric,
            "recorded": len(keys),
            "left": len(groups) - len(kept),
            **steps,
        },
    }


def _compared(run: Run) -> dict[str, int]:
    """The evaluation that the summary's `before` is of (where it is not known: the one before the first rollouts, or
    the first one), and the last one.
    """
    steps = list(run.evaluations)
    if not steps:
        return {}
    summary = run.summary or {}
    measured = dict(zip(*run.series(f"eval/{summary.get('metric')}"), strict=True))
    began = next(iter(run.rollouts), 1) - 1
    before = next(
        (step for step in steps if step in measured and measured[step] == summary.get("before")),
        began if began in steps else steps[0],
    )
    return {"before": before} if steps[-1] == before else {"before": before, "after": steps[-1]}


def _score(record: Mapping[str, Any], name: str, weights: Mapping[str, float]) -> float | int | None:
    try:
        return number(score(record, name, weights))
    # Somebody's code wrote the record.
    except TypeError:
        return None


def _weights(run: Run) -> dict[str, float]:
    try:
        return reward_weights(run.config)
    except (AttributeError, TypeError, ValueError):
        return {}
