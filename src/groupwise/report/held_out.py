"""The completions of a run's evaluation prompts, before training and at its end, prompt by prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from groupwise.report.groups import group_key
from groupwise.report.members import conversation, member, number, shortened
from groupwise.report.pictures import Pictures
from groupwise.runs import Run, reward_weights, score, split_metric

_COMPLETION_FIELDS = ("text", "messages", "image", "demonstrations")
"""Fields that hold a completion; an evaluation records them for its first prompts, and only rewards for the others."""


def held_out(run: Run, *, text_bytes: int, picture_bytes: int) -> dict[str, Any] | None:
    """Returns the prompts of one run's evaluations as groups, whose members are the completions before and after.

    Args:
        text_bytes, picture_bytes: the bytes of the page that texts and pictures may take.

    Returns:
        the table that `browse` returns, where each member has `when` (`before` or `after`) and each group its `mode`;
        and `held`: `prompts` (a name for such prompts), the `metric` that decides, `before` and `after` (the steps of
        the two evaluations; only `before` where there was one) and `recorded` (the number of prompts of an evaluation).
        `None` where no record holds a completion.
    """
    steps = _compared_steps(run)
    metric = str((run.summary or {}).get("metric") or "")
    reward_names: dict[str, None] = {}
    groups: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    keys: set[Any] = set()
    for when, step in steps.items():
        for record in run.records(run.evaluations[step], []):
            keys.add(group_key(record))
            if isinstance(rewards_by_name := record.get("rewards"), Mapping):
                reward_names.update(dict.fromkeys(map(str, rewards_by_name)))
            if any(record.get(field) is not None for field in _COMPLETION_FIELDS):
                groups.setdefault((str(record.get("mode", "")), str(group_key(record))), []).append((when, record))
    if not groups:
        return None
    deciding_mode, reward_name = split_metric(metric, (record for members in groups.values() for _, record in members))
    weights = _weights(run)
    pictures, browsed_groups, bytes_left = Pictures(picture_bytes), [], text_bytes
    for (mode, key), records in sorted(groups.items(), key=lambda keyed_records: keyed_records[0][0] != deciding_mode):
        prompt = records[0][1].get("prompt")
        prompt_data: Any = (
            conversation(prompt) if isinstance(prompt, list) else shortened("" if prompt is None else prompt)
        )
        members = [
            {
                **member(record, list(reward_names), run.path, pictures),
                "r": _score(record, reward_name, weights),
                "when": when,
            }
            for when, record in records
        ]
        group_data = {"group": shortened(key, 80), "mode": mode, "prompt": prompt_data, "members": members}
        size = len(json.dumps(group_data, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= bytes_left:
            bytes_left -= size
            browsed_groups.append(group_data)
    return {
        "parts": list(reward_names),
        "groups": browsed_groups,
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "held": {
            "prompts": run.evaluated_on.prompts,
            "metric": metric,
            "recorded": len(keys),
            "left": len(groups) - len(browsed_groups),
            **steps,
        },
    }


def _compared_steps(run: Run) -> dict[str, int]:
    """Returns the steps of the evaluation that gave the summary's `before` and of the last evaluation.

    Where no evaluation fits `before`, the one right before the first rollouts is taken, or else the first one.
    """
    steps = list(run.evaluations)
    if not steps:
        return {}
    summary = run.summary or {}
    score_by_step = dict(zip(*run.series(f"eval/{summary.get('metric')}"), strict=True))
    start_step = next(iter(run.rollouts), 1) - 1
    before = next(
        (step for step in steps if step in score_by_step and score_by_step[step] == summary.get("before")),
        start_step if start_step in steps else steps[0],
    )
    return {"before": before} if steps[-1] == before else {"before": before, "after": steps[-1]}


def _score(record: Mapping[str, Any], reward_name: str, weights: Mapping[str, float]) -> float | int | None:
    try:
        return number(score(record, reward_name, weights))
    # Somebody's code wrote the record.
    except TypeError:
        return None


def _weights(run: Run) -> dict[str, float]:
    try:
        return reward_weights(run.config)
    except (AttributeError, TypeError, ValueError):
        return {}
