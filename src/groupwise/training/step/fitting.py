"""How many members one pass takes: a number as configured, or as many as the memory at hand holds, found by measuring.

    size = floor((share * available - optimiser - fixed) / per member),   fixed and per member from a pass of one member
    and a pass of a few

How members are cut never changes a gradient beyond rounding. The size that was found is part of a checkpoint, so that a
resumed run cuts alike.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.protocol import Samples
from groupwise.processes import is_out_of_memory
from groupwise.statistics import Statistic
from groupwise.training.step.memory import available_bytes, peak_bytes
from groupwise.training.step.step import Step

Parts = list[dict[str, Statistic]]

SHARE = 0.9
"""Of the memory at hand, what is planned with: allocators round up, and leave holes."""

LONGER = 1.1
"""Members that are longer than the measured ones by this factor are measured anew."""

_FEW = 4


def fit_micro_batch(step: Step, samples: Samples, lengths: Tensor, requires: frozenset[str]) -> str:
    """Measures, where `micro_batch_members = "auto"` and these members are longer than any measured before.

    The passes are real ones on the longest members; gradients, modes, buffers and random numbers are afterwards as if
    they had not been.

    Args:
        step: of the stage; every process must call.
        samples: at least one member.
        lengths: `[B]` decisions of each.
        requires: fields that the loss reads.

    Returns:
        What was found, in a sentence; empty where nothing was measured.
    """
    if not step.fits:
        return ""
    state, world = step.state, step.world
    longest, most = world.max(int(lengths.max())), world.max(len(samples))
    if longest <= LONGER * state.progress.measured_decisions:
        return ""
    one, per_member, available = _measure(step, samples, lengths, requires)
    room = SHARE * available - (one - per_member)
    own = most if per_member <= 0 else max(1, min(most, int(room // per_member)))
    size = min(world.gather(own))
    state.progress.micro_batch_members, state.progress.measured_decisions = size, longest
    found = (
        f"micro-batches of {size} members: one pass takes {_mib(one - per_member)} and {_mib(per_member)} a member,"
        f" {_mib(available)} are at hand"
    )
    return found if room >= per_member else f"{found}, which is too little for one; the run goes on and may fail"


def retrying(step: Step, accumulate: list[Callable[[], Parts]], say: Callable[[str], None]) -> Parts:
    """Accumulates a gradient in parts. Where the size is found by measuring and memory runs out on any process, halves
    it and begins anew.

    Args:
        step: of the stage.
        accumulate: each adds to `.grad` and returns its statistics; all collective work of one is done before its first
            pass.
        say: receives a sentence when the size was halved.

    Returns:
        the statistics of all parts.

    Raises:
        ConfigError: memory ran out with a fixed size, or with one member in a pass.
    """
    state = step.state
    while True:
        parts: Parts = []
        failure: BaseException | None = None
        for part in accumulate:
            try:
                parts += part()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failure = error
            if any(step.world.gather(failure is not None)) if step.fits else failure is not None:
                break
        else:
            return parts
        size = step.members_at_once
        if not step.fits or size == 1:
            raise ConfigError(_advice(size, step.fits)) from failure
        assert size is not None
        state.progress.micro_batch_members = size // 2
        state.learner.zero_gradients()
        # The failed pass is held by its error, whose frames hold its tensors.
        failure = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(f"memory ran out with {size} members in a pass; the update is made again with {size // 2}")


def _measure(step: Step, samples: Samples, lengths: Tensor, requires: frozenset[str]) -> tuple[float, float, float]:
    """Bytes of a pass of the longest member, of each further one, and at hand beside what the optimiser will still
    take.
    """
    domain, state, device = step.domain, step.state, samples.mask.device
    order = _one_a_group(torch.argsort(lengths, descending=True, stable=True), samples.group)
    few = min(_FEW, len(order))

    def run(count: int) -> None:
        fields = domain.score(samples, order[:count], requires).tensors()
        total = sum(value.sum() for value in fields.values())
        if isinstance(total, Tensor) and total.requires_grad:
            total.backward()

    devices = [device] if device.type == "cuda" else []
    with torch.enable_grad(), torch.random.fork_rng(devices=devices), state.learner.rehearsal() as to_come:
        try:
            # The first pass makes the gradients, which then stay.
            run(1)
            available = available_bytes(device, step.recipe.train.memory_limit_gib) - to_come
            one = peak_bytes(lambda: run(1), device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise ConfigError(_advice(1, True)) from error
        several = _several_bytes(lambda: run(few), device)
    # Where a few do not fit, all that is known of further members is that each is at most another first one.
    return one, one if several is None or few == 1 else (several - one) / (few - 1), available


def _several_bytes(run: Callable[[], None], device: torch.device) -> int | None:
    """What a pass of a few members takes; `None` where memory runs out in it."""
    try:
        return peak_bytes(run, device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


def _one_a_group(order: Tensor, group: Tensor) -> Tensor:
    """The same members, one of every group in front: what members of a group share (their prompt) would be counted once
    for all that are measured.
    """
    seen: set[int] = set()
    first: list[int] = []
    rest: list[int] = []
    for member, number in zip(order.tolist(), group[order].tolist(), strict=True):
        (rest if number in seen else first).append(member)
        seen.add(number)
    return torch.tensor(first + rest, dtype=order.dtype, device=order.device)


def _advice(size: int | None, fitted: bool) -> str:
    said = f"memory ran out with {'all members' if size is None else f'{size} members'} in a pass"
    more = "train.gradient_checkpointing = true, train.autocast = bfloat16, shorter completions, or an adapter"
    return (
        f"{said}; write {more}"
        if fitted
        else f'{said}; write train.micro_batch_members = "auto" or a smaller number, {more}'
    )


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"
