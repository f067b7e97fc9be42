"""What the group browser of a page holds: the chosen groups of each run with their members, within a budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.report.groups import STRATA, Group, Recorded, choose, group_key
from groupwise.report.members import conversation, member, shortened
from groupwise.report.pictures import Pictures
from groupwise.runs import Run, is_number

MOST_MEMBERS = 128
"""Of one group; the best and the worst half of them stay."""


def browse(run: Run, recorded: Recorded, *, most_groups: int, text_bytes: int, picture_bytes: int) -> dict[str, Any]:
    """The groups of one run that a page shows.

    Args:
        run: of which.
        recorded: what `scan` found in it.
        most_groups: how many groups at most.
        text_bytes, picture_bytes: what they may take of the page.

    Returns:
        `parts` (names of the rewards), `groups` in order of their steps, `pictures` (addresses that members name by
        number), and `counts`: how many groups are shown of each stratum, how many there are, and the step from which on
        none was left out where a long run was thinned.
    """
    chosen = choose(recorded.groups, most_groups)
    order = {(group.step, group.key): place for place, (group, _) in enumerate(chosen)}
    members: dict[int, list[dict[str, Any]]] = {}
    for step in sorted({group.step for group, _ in chosen}):
        for record in run.records(run.rollouts[step], []):
            if (place := order.get((step, group_key(record)))) is not None:
                members.setdefault(place, []).append(record)
    pictures = Pictures(picture_bytes)
    kept, left = [], text_bytes
    # In the order of their worth, so that a small budget still holds every stratum.
    for place in sorted(members):
        found = _group(*chosen[place], members.pop(place), recorded.parts, run, pictures)
        size = len(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= left:
            left -= size
            kept.append(found)
    counts = {stratum: sum(each["why"] == stratum for each in kept) for stratum in STRATA}
    return {
        "parts": list(recorded.parts),
        "groups": sorted(kept, key=lambda each: (each["step"], str(each["group"]))),
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "counts": {
            "shown": len(kept),
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
    group: Group, why: str, records: Sequence[Mapping[str, Any]], parts: Sequence[str], run: Run, pictures: Pictures
) -> dict[str, Any]:
    best = sorted(
        records, key=lambda record: -float(record["reward"]) if is_number(record.get("reward")) else float("inf")
    )
    if len(best) > MOST_MEMBERS:
        best = [*best[: MOST_MEMBERS // 2], *best[-MOST_MEMBERS // 2 :]]
    prompt, first = best[0].get("prompt"), best[0]
    shown: Any = conversation(prompt) if isinstance(prompt, list) else shortened("" if prompt is None else prompt)
    found = {
        "step": group.step,
        "group": group.key,
        "key": shortened(first.get("key", ""), 80),
        "why": why,
        "prompt": shown,
        "members": [member(record, parts, run.path, pictures) for record in best],
    }
    if len(records) > len(best):
        found["left"] = len(records) - len(best)
    if group.flat:
        found["flat"] = True
    if group.all_wrong:
        found["wrong"] = True
    if isinstance(settings := first.get("settings"), Mapping):
        found["settings"] = {str(name): value for name, value in settings.items() if is_number(value)}
    return found
