"""A trial of a user's pieces (slots, schedules, a reference) before anything is computed: each is called once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from groupwise.config import ConfigError, PieceError, PieceFromPath, import_paths
from groupwise.config.user_module import may_run
from groupwise.objective import Objective
from groupwise.objective.deviation import Deviation
from groupwise.objective.matching import CopyMatching, NoMatching
from groupwise.records import DECISION_FIELDS, Rollouts, Scored
from groupwise.reference import ReferenceRule
from groupwise.schedule.base import Value
from groupwise.training.job import Job

_MISTAKES = (TypeError, AttributeError, NameError, ImportError, NotImplementedError)
"""Exceptions that no rollouts could avoid."""
_NUM_GROUPS, _NUM_DECISIONS, _NUM_ELEMENTS = 2, 4, 3


def try_pieces(job: Job) -> None:
    """Refuses a piece of a user's own that fails, or returns something else than it should, on two made groups.

    A failure that may come from the made numbers (a `KeyError` for the name of a reward, another number of decisions)
    is left to the first batch.

    Args:
        job: the description of a run that can work.

    Raises:
        ConfigError: names the path of the piece, and what is wrong.
    """
    for recipe in [*job.recipes, *(recipe for recipes in job.controls.values() for recipe in recipes)]:
        configs = (recipe.objective, recipe.optimiser, recipe.reference, *recipe.sampling.values())
        pieces = [piece for piece in _pieces(configs) if may_run(piece.path)]
        for piece in pieces:
            if isinstance(piece, Value):
                _tried(partial(_first_value, piece), ValueError)
            if isinstance(piece, ReferenceRule):
                _tried(partial(piece.follow, 1, 0.0, 0.0), ValueError)
        if pieces and recipe.samples:
            _tried(partial(_loss, recipe.objective, recipe.train.group_size))


def _pieces(configs: Iterable[BaseModel | None]) -> Iterator[PieceFromPath]:
    """Yields every user's piece inside configurations."""
    for config in configs:
        for place in () if config is None else import_paths(config):
            if isinstance(place.holder, PieceFromPath) and place.path is place.holder.path:
                yield place.holder


def _tried(attempt: Callable[[], object], *refused: type[Exception]) -> None:
    """Calls an attempt; of what it raises, only a mistake of a piece is an error.

    Args:
        attempt: what calls pieces.
        refused: exceptions of our own words that are errors as well.
    """
    try:
        attempt()
    except PieceError as error:
        if isinstance(error.__cause__, _MISTAKES) or (
            error.__cause__ is None and not _is_of_another_width(error.result)
        ):
            raise ConfigError(str(error)) from error
    # The made numbers are nobody's, and may be refused for what real ones would not be.
    except Exception as error:
        if isinstance(error, refused):
            raise ConfigError(str(error)) from error


def _is_of_another_width(result: Any) -> bool:
    """Returns whether a result is a table of another number of decisions, which may be that of real members."""
    table = result[0] if isinstance(result, tuple) and result else getattr(result, "value", result)
    return isinstance(table, Tensor) and table.dim() == 2 and table.shape[1] not in (1, _NUM_DECISIONS)


def _first_value(schedule: Value) -> float:
    return schedule.at(0, schedule.init())


def _loss(objective: Objective, group_size: int) -> None:
    """Computes the loss of two made groups, one of them of equal rewards."""
    members = _NUM_GROUPS * group_size
    table = torch.ones(members, _NUM_DECISIONS)
    mask = table.bool()
    mask[1::2, -1] = False
    log_prob = -table - 0.1 * torch.arange(members)[:, None]
    scored = dict.fromkeys(objective.requires, table * 0.5)
    scored["log_prob"] = (log_prob - 0.01).requires_grad_()
    if not isinstance(matching := objective.matching, NoMatching):
        copies = {name: value.view_as(table) for name, value in _matched(matching, table.numel()).items()}
        mask, log_prob, scored = torch.ones_like(mask), copies["log_prob"].detach() - 0.01, scored | copies
    rewards = torch.full((members,), 0.5)
    rewards[:group_size] = torch.linspace(0.0, 1.0, group_size)
    recorded: dict[str, Any] = {
        name: log_prob - 0.1 if name.endswith("_log_prob") else table for name in DECISION_FIELDS
    }
    rollouts = Rollouts(
        torch.arange(_NUM_GROUPS).repeat_interleave(group_size),
        mask,
        log_prob,
        {"reward": rewards},
        reward_history=torch.full((members, max(1, objective.advantage.history_size)), 0.5),
        density=not objective.matching.neutral,
        **recorded,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    objective.loss(Scored.from_tensors(scored), plan)


def _matched(matching: CopyMatching, num_copies: int) -> Mapping[str, Tensor]:
    """Returns the fields of made copies with different deviations, on both sides of the old policy's."""
    old = torch.linspace(-1.0, 1.0, num_copies * _NUM_ELEMENTS).view(num_copies, _NUM_ELEMENTS)
    time = torch.linspace(0.1, 1.0, num_copies)
    return matching(Deviation((0.9 * old + 0.05).requires_grad_(), old, time, time))
