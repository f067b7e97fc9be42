"""The sampled members as records for people: one record a member, with its rewards, its advantage and the policy's
change on it.
"""

import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.checkpoint.atomic import write_file
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Cell, Interval, Table
from groupwise.domain.returned import checked_records
from groupwise.objective import Objective
from groupwise.objective.batch import Acted
from groupwise.objective.decisions import Decisions
from groupwise.reward.image import is_picture
from groupwise.training.step.rollouts import Collected
from groupwise.training.step.step import Updates
from groupwise.transfer import moved


def rollout_records(
    domain: Domain, objective: Objective, collected: Collected, updates: Updates, limit: int
) -> list[dict[str, Any]]:
    """Returns records of the first `limit` members of this process, in whole groups as far as they fit.

    Each record holds the domain's description of the member (prompt, text, ...), `group`, `rewards` by name, `reward`
    (their weighted sum), `advantage` (mean over decisions), `num_decisions`, and `log_ratio` (mean over decisions at
    the last scoring, nats; 0 where every update was on-policy). `logged` holds what rewards logged of the member by
    `log_extra`.

    Where the domain gives a member's `tokens`, numbers of every token follow, `None` for a token that was not a
    decision: `token_log_prob` (nats, when it was sampled), `token_log_ratio` (nats, at the last scoring; left out where
    all are 0) and `token_credit` (advantage times credit; left out where it is the member's advantage everywhere).
    """
    samples, rewards = collected.samples, collected.samples.rewards
    rows = torch.arange(min(limit, len(samples)))
    described = checked_records(domain.describe(samples, rows), len(rows))
    has_tokens = any("tokens" in record for record in described)
    shown = rows.to(samples.mask.device)
    # Everything that is read of the device, at once.
    read = moved(
        {
            "place": samples.place,
            "mask": samples.mask[shown],
            "log_ratio": updates.log_ratio.sum(1) / samples.mask.sum(1).clamp(min=1),
            "advantage": None if collected.batch is None else collected.batch.advantage.mean(1),
            "fields": decision_fields(objective, collected, updates, shown) if has_tokens else {},
        }
    )
    places, lengths, log_ratios = read["place"].tolist(), read["mask"].sum(1).tolist(), read["log_ratio"].tolist()
    advantage = None if read["advantage"] is None else read["advantage"].tolist()
    totals = (
        rewards.total(objective.partial_rewards, places)
        if any(weight != 0 for weight in rewards.weights.values())
        else [None] * len(samples)
    )
    records = []
    for row, record in enumerate(described):
        member_record = {
            **record,
            "group": places[row],
            "rewards": {name: values[row] for name, values in rewards.values.items()},
            "reward": totals[row],
            "advantage": None if advantage is None else advantage[row],
            "num_decisions": lengths[row],
            "log_ratio": log_ratios[row],
        }
        if rewards.extras:
            member_record["logged"] = {column: entries[row] for column, entries in rewards.extras.items()}
        if "tokens" in record:
            num_tokens = len(record["tokens"])
            member_record |= _token_fields(
                read["fields"], row, num_tokens, read["mask"][row], member_record["advantage"]
            )
        records.append(member_record)
    return records


def decision_fields(objective: Objective, collected: Collected, updates: Updates, rows: Tensor) -> dict[str, Tensor]:
    """Computes `[R, T]` numbers of every decision of some members: `token_log_prob`, `token_log_ratio`, and
    `token_credit` where the batch and its objective give it.

    Credit is computed at the policy that sampled, before the first update. Credit that compares decisions of the whole
    update, or reads what only a scoring gives (entropy), is left out.

    Args:
        collected: the rollouts of the step.
        updates: the optimiser steps of the step.
        rows: `[R]`, the places of the members.
    """
    samples, batch = collected.samples, collected.batch
    fields = {"token_log_prob": samples.old_log_prob[rows], "token_log_ratio": updates.log_ratio[rows]}
    score_norm = None if samples.recorded is None else samples.recorded.score_norm
    if batch is not None and _is_computable(objective, batch.acted, score_norm):
        log_prob = torch.where(samples.mask, samples.old_log_prob, 0.0)[rows]
        decisions = Decisions(
            replace(batch.acted.select(rows), old_log_prob=log_prob),
            log_prob,
            advantage=batch.advantage[rows].to(log_prob.dtype) * samples.mask[rows],
            score_norm=None if score_norm is None else score_norm[rows],
        )
        fields["token_credit"] = decisions.advantage * objective.credit(decisions)
    return fields


def _is_computable(objective: Objective, acted: Acted, score_norm: Tensor | None) -> bool:
    """Returns whether every link of the credit can be computed from the fields that sampling recorded."""
    recorded = {"score_norm": score_norm}
    return all(
        link.scope != "batch" and all(recorded.get(name, getattr(acted, name, None)) is not None for name in link.reads)
        for link in objective.credit.links()
    )


def _token_fields(
    fields: Mapping[str, Tensor], row: int, num_tokens: int, mask: Tensor, advantage: float | None
) -> dict[str, list[float | None]]:
    """Returns numbers of one member's tokens, rounded to three digits."""
    valid = mask[:num_tokens].tolist()
    numbers_by_name = {}
    for name, values in fields.items():
        token_values = values[row, :num_tokens].tolist()
        trivial = {"token_log_ratio": 0.0, "token_credit": advantage}.get(name)
        if trivial is None or any(
            abs(value - trivial) > 1e-6 for value, is_decision in zip(token_values, valid, strict=True) if is_decision
        ):
            numbers_by_name[name] = [
                float(f"{value:.3g}") if is_decision and math.isfinite(value) else None
                for value, is_decision in zip(token_values, valid, strict=True)
            ]
    return numbers_by_name


# Tables that a domain makes at the end of a run, written into the run folder for programs and for people.


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Writes `folder/NAME.json` and `folder/NAME.md` for each table.

    Args:
        folder: the folder of the files, which is made for the first table.

    Raises:
        StorageError: a file could not be written.
    """
    for table in tables:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / f"{table.name}.json", json.dumps(as_json(table), indent=2, ensure_ascii=False) + "\n")
        write_file(folder / f"{table.name}.md", as_markdown(table))


def as_json(table: Table) -> dict[str, Any]:
    """Returns the table as JSON-able values; an interval is `{"mean", "low", "high"}`.

    Example:
        >>> as_json(Table("lead", "A lead", ["by", "1 shot"], [["kNN", Interval(0.1, 0.0, 0.2)]]))["rows"]
        [['kNN', {'mean': 0.1, 'low': 0.0, 'high': 0.2}]]
    """
    rows = [[vars(cell) if isinstance(cell, Interval) else cell for cell in row] for row in table.rows]
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "rows": rows,
        "notes": list(table.notes),
    }


def as_markdown(table: Table) -> str:
    """Returns the table as Markdown.

    Example:
        >>> print(as_markdown(Table("lead", "A lead", ["by", "1 shot"], [["kNN", 0.25]])))
        A lead
        <BLANKLINE>
        | by | 1 shot |
        |---|---|
        | kNN | 0.250 |
        <BLANKLINE>
    """
    lines = [table.title, "", _row(table.columns), "|" + "---|" * len(table.columns)]
    lines += [_row([as_text(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, *(["", *table.notes] if table.notes else []), ""])


def as_text(cell: Cell) -> str:
    """Returns a cell for people: an interval as `mean [low, high]`, an empty cell as `-`.

    Example:
        >>> as_text(Interval(0.85, 0.8412, 0.859)), as_text(None)
        ('0.850 [0.841, 0.859]', '-')
    """
    if isinstance(cell, Interval):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:.3f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# Images in records: each is written as a PNG file beside the records, and its path replaces it in the record.


def write_pictures(folder: Path, pictures: Mapping[str, Tensor]) -> list[Path]:
    """Writes `folder/NAME.png` for every picture and returns the files, in order.

    Args:
        folder: the folder of the files, which is made for the first picture.
        pictures: `uint8` tensors, `[H, W]` or `[H, W, 3]`.

    Raises:
        ValueError: a picture has another type or shape.
    """
    files = []
    for name, picture in pictures.items():
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{name}.png")
        # Pictures are not needed for a resume. Waiting for the disk hundreds of times a step took longer than the step.
        write_file(files[-1], _png(picture, name), durable=False)
    return files


def with_files(records: Sequence[Mapping[str, Any]], folder: Path, root: Path) -> list[dict[str, Any]]:
    """Writes every image in the records to `folder/NUMBER-KEY.png`, and returns the records with the path in place of
    the image, relative to `root`.

    Args:
        records: records whose values may be images.
        folder: the folder of the image files.
        root: the run folder; a moved run folder keeps valid paths.
    """
    records_with_paths = []
    for number, record in enumerate(records):
        images = {key: value for key, value in record.items() if isinstance(value, Tensor)}
        files = write_pictures(folder, {f"{number}-{key}": image for key, image in images.items()})
        records_with_paths.append(
            {**record, **{key: os.path.relpath(file, root) for key, file in zip(images, files, strict=True)}}
        )
    return records_with_paths


def _png(picture: Tensor, name: str) -> bytes:
    if not is_picture(picture):
        raise ValueError(
            f"picture {name!r}: {picture.dtype} {tuple(picture.shape)}; a picture is torch.uint8 of shape [H, W] or [H,"
            " W, 3]"
        )
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.cpu().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()
