"""The data of a page's group browser: a sample of each run's groups with their members, within a budget of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.report.groups import STRATA, Group, Recorded, choose, group_key
from groupwise.report.members import conversation, member, shortened
from groupwise.report.pictures import Pictures
from groupwise.runs import Run, is_number

MOST_MEMBERS = 128
"""Members of one group on a page; of a larger group the best and the worst half of this number stay."""


def browse(run: Run, recorded: Recorded, *, most_groups: int, text_bytes: int, picture_bytes: int) -> dict[str, Any]:
    """Returns the groups of one run that a page shows.

    Args:
        recorded: the run's groups, as `scan` returns them.
        most_groups: the largest number of groups.
        text_bytes, picture_bytes: the bytes of the page that texts and pictures may take.

    Returns:
        `parts` (names of the rewards), `groups` in order of their steps, `pictures` (addresses that members name by
        number), and `counts`: how many groups are shown of each stratum, how many there are, and the step from which on
        none was left out where a long run was thinned.
    """
    sample = choose(recorded.groups, most_groups)
    order = {(group.step, group.key): position for position, (group, _) in enumerate(sample)}
    members: dict[int, list[dict[str, Any]]] = {}
    for step in sorted({group.step for group, _ in sample}):
        for record in run.records(run.rollouts[step], []):
            if (position := order.get((step, group_key(record)))) is not None:
                members.setdefault(position, []).append(record)
    pictures = Pictures(picture_bytes)
    browsed_groups, bytes_left = [], text_bytes
    # The sample is ordered by importance, so that a small budget still contains every stratum.
    for position in sorted(members):
        group_data = _group(*sample[position], members.pop(position), recorded.reward_names, run, pictures)
        size = len(json.dumps(group_data, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= bytes_left:
            bytes_left -= size
            browsed_groups.append(group_data)
    counts = {stratum: sum(group_data["why"] == stratum for group_data in browsed_groups) for stratum in STRATA}
    return {
        "parts": list(recorded.reward_names),
        "groups": sorted(browsed_groups, key=lambda group_data: (group_data["step"], str(group_data["group"]))),
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "counts": {
            "shown": len(browsed_groups),
            "recorded": len(recorded.groups),
            "flat": sum(group.flat for group in recorded.groups),
            "all_wrong": sum(group.all_wrong for group in recorded.groups),
            "steps": len(run.rollouts),
            "of_steps": run.num_steps,
            "whole_from": run.whole_from,
            "strata": {stratum: count for stratum, count in counts.items() if count},
        },
    }


def _group(
    group: Group,
    stratum: str,
    records: Sequence[Mapping[str, Any]],
    reward_names: Sequence[str],
    run: Run,
    pictures: Pictures,
) -> dict[str, Any]:
    ranked = sorted(
        records, key=lambda record: -float(record["reward"]) if is_number(record.get("reward")) else float("inf")
    )
    if len(ranked) > MOST_MEMBERS:
        ranked = [*ranked[: MOST_MEMBERS // 2], *ranked[-MOST_MEMBERS // 2 :]]
    prompt, first_record = ranked[0].get("prompt"), ranked[0]
    prompt_data: Any = conversation(prompt) if isinstance(prompt, list) else shortened("" if prompt is None else prompt)
    group_data = {
        "step": group.step,
        "group": group.key,
        "key": shortened(first_record.get("key", ""), 80),
        "why": stratum,
        "prompt": prompt_data,
        "members": [member(record, reward_names, run.path, pictures) for record in ranked],
    }
    if len(records) > len(ranked):
        group_data["left"] = len(records) - len(ranked)
    if group.flat:
        group_data["flat"] = True
    if group.all_wrong:
        group_data["wrong"] = True
    if isinstance(settings := first_record.get("settings"), Mapping):
        group_data["settings"] = {str(name): value for name, value in settings.items() if is_number(value)}
    return group_data
