"""The sizes of passes of a domain that cuts them by itself: measured at a stage's start, agreed on by all processes,
kept in the state of the run.
"""

from __future__ import annotations

from contextlib import nullcontext

from groupwise.domain.base import Domain
from groupwise.domain.pass_sizes import UPDATE
from groupwise.domain.protocol import CutsPasses
from groupwise.training.distributed import World
from groupwise.training.progress import Progress
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step
from groupwise.training.step.whole_weights import whole_weights


def fit_passes(domain: Domain, state: TrainState, world: World) -> None:
    """Measures the rows of each kind of pass, beside what the optimiser will take, and agrees on them.

    Args:
        domain: of the stage; nothing happens where it does not cut its passes.
        world: the processes; every process must call this function.
    """
    if not isinstance(domain, CutsPasses):
        return
    learner = state.learner
    rehearsal = learner.rehearsal() if "rehearsal" in learner.offers else nullcontext(0)
    with whole_weights(domain, world), rehearsal as reserved:
        domain.fit_passes(reserved_bytes=reserved)
    agree_on_passes(domain, state.progress, world)


def restore_passes(domain: Domain, progress: Progress) -> None:
    """Gives a domain the sizes of a run that goes on.

    Args:
        domain: of the stage.
    """
    if isinstance(domain, CutsPasses):
        domain.pass_sizes.restore(progress.pass_sizes)


def agree_on_passes(domain: Domain, progress: Progress, world: World) -> None:
    """Takes the smallest size of any process for each kind of pass, and keeps them in the state.

    Args:
        domain: of the stage.
        world: the processes; every process must call this function.
    """
    if not isinstance(domain, CutsPasses):
        return
    process_sizes = world.gather(domain.pass_sizes.record())
    kinds = sorted({kind for sizes in process_sizes for kind in sizes})
    agreed = {kind: min(sizes[kind] for sizes in process_sizes if kind in sizes) for kind in kinds}
    domain.pass_sizes.restore(agreed)
    progress.pass_sizes = agreed


def halve_passes(step: Step) -> str:
    """Takes half of the rows of a pass with a gradient from now on, on every process; returns a sentence on both
    numbers, empty where there is nothing to halve.

    Args:
        step: the step of the stage; every process must call this function.
    """
    domain = step.domain
    if not isinstance(domain, CutsPasses) or step.sharded:
        return ""
    sizes = domain.pass_sizes
    size = min(sizes.rows(UPDATE), step.world.max(sizes.largest_update))
    if not sizes.halve(UPDATE, size):
        return ""
    sizes.largest_update = sizes.rows(UPDATE)
    return f"{size} rows in a pass; the update is made again with {size // 2}"
