"""The passes of a step other than those of the loss: gradients by cotangents and of demonstrations, passes that add
nothing, and the size of a pass where it is measured.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.pass_sizes import UPDATE
from groupwise.domain.protocol import CutsPasses, Samples
from groupwise.memory import available_bytes, peak_bytes, running_out
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.batch import Acted
from groupwise.processes import is_out_of_memory
from groupwise.records import Scored
from groupwise.schedule import Constant
from groupwise.statistics import Mean, Statistic
from groupwise.training.distributed import World
from groupwise.training.step.state import Progress, Step, TrainState, whole_weights


def fit_passes(domain: Domain, state: TrainState, world: World) -> None:
    """Measures the rows of each kind of pass, in the memory that the optimiser leaves, and agrees on them.

    Args:
        domain: the domain of the stage; nothing happens where it does not cut its passes.
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
    """Gives a domain the sizes of a run that continues.

    Args:
        domain: the domain of the stage.
    """
    if isinstance(domain, CutsPasses):
        domain.pass_sizes.restore(progress.pass_sizes)


def agree_on_passes(domain: CutsPasses, progress: Progress, world: World) -> None:
    """Takes the smallest size of any process for each kind of pass, and keeps them in the state.

    Args:
        domain: the domain of the stage.
        world: the processes; every process must call this function.
    """
    process_sizes = world.gather(domain.pass_sizes.record())
    kinds = sorted({kind for sizes in process_sizes for kind in sizes})
    agreed = {kind: min(sizes[kind] for sizes in process_sizes if kind in sizes) for kind in kinds}
    domain.pass_sizes.restore(agreed)
    progress.pass_sizes = agreed


def halve_passes(step: Step) -> str:
    """Halves the rows of a pass with a gradient from now on, on every process. Returns a sentence with both numbers;
    empty where nothing can be halved.

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


# The number of members in a pass: a configured number, or as many as the available memory holds, found by measuring.
#
#     size = floor((share * available - optimiser - fixed) / per_member)
#
# Two passes, one with a single member and one with a few, give `fixed` and `per_member`.
#
# The size changes a gradient only by rounding. It is part of a checkpoint, so that a resumed run cuts its batches in
# the same way.

PassStatistics = list[dict[str, Statistic]]
"""The statistics of each pass, by name."""

SHARE = 0.9
"""The share of the available memory that a pass may take: allocators round up and leave gaps."""

LONGER = 1.1
"""Members that are longer than the measured ones by this factor are measured again."""

_FEW = 4


def fit_micro_batch(step: Step, samples: Samples, lengths: Tensor, requires: frozenset[str]) -> list[str]:
    """Measures the size of a pass (`micro_batch_members = "auto"`) where these members are longer than those measured
    before.

    The passes are real passes of the longest members; they leave gradients, modes, buffers and random numbers
    unchanged.

    Args:
        step: the step of the stage; every process must call this function.
        samples: at least one member.
        lengths: `[B]`, decisions of each member.
        requires: fields that the loss reads.

    Returns:
        a sentence about the measured size; none where nothing was measured.
    """
    state, world = step.state, step.world
    longest, most = world.max(int(lengths.max())), world.max(len(samples))
    if longest <= LONGER * state.progress.measured_decisions:
        return []
    single_bytes, per_member, available = _measure(step, samples, lengths, requires)
    room = SHARE * available - (single_bytes - per_member)
    local_size = most if per_member <= 0 else max(1, min(most, int(room // per_member)))
    size = min(world.gather(local_size))
    state.progress.micro_batch_members, state.progress.measured_decisions = size, longest
    remark = (
        f"micro-batches of {size} members: one pass takes {_mib(single_bytes - per_member)} and {_mib(per_member)} a"
        f" member, {_mib(available)} are at hand"
    )
    return [remark if room >= per_member else f"{remark}, which is too little for one; the run goes on and may fail"]


def retrying(
    step: Step, accumulate: list[Callable[[], PassStatistics]], report: Callable[[str], None]
) -> PassStatistics:
    """Accumulates a gradient in parts. Where the size of a pass is measured (by this module, or by the domain) and
    memory runs out on any process, halves the size and begins anew.

    Args:
        step: the step of the stage.
        accumulate: functions that add to `.grad` and return their statistics; each does its collective work before its
            first pass.
        report: receives a sentence when the size was halved.

    Returns:
        the statistics of all parts.

    Raises:
        ConfigError: memory ran out with a fixed size, or with one member in a pass.
    """
    state = step.state
    adapts = step.measures_pass_size or (isinstance(step.domain, CutsPasses) and not step.sharded)
    while True:
        statistics: PassStatistics = []
        failure: BaseException | None = None
        for accumulate_part in accumulate:
            try:
                statistics += accumulate_part()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if step.sharded:
                    # The other processes wait inside the failed pass, where nothing can be agreed on.
                    raise ConfigError(_advice(step, step.members_at_once)) from error
                failure = error
            if any(step.world.gather(failure is not None)) if adapts else failure is not None:
                break
        else:
            return statistics
        smaller = halve_passes(step) or _halve_members(step)
        if not smaller:
            raise ConfigError(_advice(step, step.members_at_once)) from failure
        state.learner.zero_gradients()
        # The error keeps the frames of the failed pass, and these keep its tensors in memory.
        failure = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        report(f"memory ran out with {smaller}")


def _halve_members(step: Step) -> str:
    """Halves the number of members in a pass from now on, if that number is measured. Returns a sentence with both
    numbers; empty where nothing can be halved.
    """
    size = step.members_at_once
    if not step.measures_pass_size or size is None or size == 1:
        return ""
    step.state.progress.micro_batch_members = size // 2
    return f"{size} members in a pass; the update is made again with {size // 2}"


def _measure(step: Step, samples: Samples, lengths: Tensor, requires: frozenset[str]) -> tuple[float, float, float]:
    """Returns three sizes in bytes: a pass of the longest member, each further member, and the memory that remains
    after the optimiser's moments.
    """
    state, device = step.state, samples.mask.device
    order = _one_member_a_group_first(torch.argsort(lengths, descending=True, stable=True), samples.group)
    num_several = min(_FEW, len(order))

    def run(count: int) -> None:
        fields = step.domain.score(samples, order[:count], requires).tensors()
        total = sum(value.sum() for value in fields.values())
        if isinstance(total, Tensor) and total.requires_grad:
            total.backward()

    devices = [device] if device.type == "cuda" else []
    with torch.enable_grad(), torch.random.fork_rng(devices=devices), state.learner.rehearsal() as optimiser_bytes:
        with running_out(_advice(step, 1)):
            # The first pass allocates the gradients, which stay allocated in the measured pass.
            run(1)
            available = available_bytes(device, step.recipe.train.memory_limit_gib) - optimiser_bytes
            single_bytes = peak_bytes(lambda: run(1), device)
        if step.sharded:
            # Running out of memory here would end the run, so the pass takes only members that fit if all are as long.
            fitting = int(SHARE * available // max(1, single_bytes))
            num_several = min(step.world.gather(max(1, min(num_several, fitting))))
        several_bytes = _several_bytes(lambda: run(num_several), device, step) if num_several > 1 else None
    # Where a few members do not fit, a further member counts as much as the first one, which is an upper bound.
    per_member = single_bytes if several_bytes is None else (several_bytes - single_bytes) / (num_several - 1)
    return single_bytes, per_member, available


def _several_bytes(run: Callable[[], None], device: torch.device, step: Step) -> int | None:
    """Returns the bytes of a pass of a few members; `None` where memory runs out in it."""
    try:
        return peak_bytes(run, device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if step.sharded:
            # The other processes wait inside the failed pass.
            raise ConfigError(_advice(step, _FEW)) from error
        return None


def _one_member_a_group_first(order: Tensor, group: Tensor) -> Tensor:
    """Orders the members so that one of every group comes first. Members of a group share their prompt: with several of
    one group, the measurement would count the prompt's memory only once.
    """
    seen_groups: set[int] = set()
    first_members: list[int] = []
    later_members: list[int] = []
    for member, group_number in zip(order.tolist(), group[order].tolist(), strict=True):
        (later_members if group_number in seen_groups else first_members).append(member)
        seen_groups.add(group_number)
    return torch.tensor(first_members + later_members, dtype=order.dtype, device=order.device)


def _advice(step: Step, size: int | None) -> str:
    failure = f"memory ran out with {'all members' if size is None else f'{size} members'} in a pass"
    fewer = "" if step.measures_pass_size else 'train.micro_batch_members = "auto" or a smaller number, '
    if step.measures_pass_size and step.sharded and size is not None and size > 1:
        fewer = f"train.micro_batch_members = {size // 2}, "
    return f"{failure}; write {fewer}{step.domain.memory_remedy}"


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def score_without_gradient(step: Step, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
    """Scores members pass by pass, without gradient; every process must call this function.

    Args:
        samples: at least one member.
        rows: `[R]`, the members to score; may be empty.
        requires: names of the fields.
    """
    fields: dict[str, Tensor] = {}
    with torch.no_grad():
        for chosen in step.passes(samples.mask[rows].sum(1)):
            if chosen is None:
                join_pass(step, samples, requires)
                continue
            for name, value in step.domain.score(samples, rows[chosen], requires).tensors().items():
                if name not in fields:
                    fields[name] = value.new_zeros((len(rows), *value.shape[1:]))
                fields[name][chosen] = value
    return Scored.from_tensors(fields or dict.fromkeys(requires, samples.old_log_prob[rows]))


def by_cotangents(
    step: Step, samples: Samples, rows: Tensor, plan: Plan, scored: Scored, *, on_policy: bool
) -> PassStatistics:
    """Accumulates the policy's gradient by cotangents, the loss's gradient by each scored field, which are computed
    before the model runs. The learner may differentiate elsewhere.

    Args:
        samples: the members of the step.
        rows: `[R]`, the places of the update's members.
        plan: the weights of these members.
        scored: their fields under the live policy, without gradient.
        on_policy: whether this is the first update on the batch.
    """
    objective = step.objective
    cotangents = objective.cotangents(scored, plan)
    fields = {
        name: value
        for name, value in cotangents.scored.tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    # A member whose cotangents are all zero (of a flat group) adds nothing to the gradient, so that the model skips it.
    moves = torch.stack([(value != 0).any(1) if value.dim() > 1 else value != 0 for value in fields.values()])
    alive = moves.any(0).nonzero()[:, 0]
    lengths = plan.acted.mask.sum(1)
    statistics: PassStatistics = [{**cotangents.loss.statistics, "scored_share": Mean.ratio(len(rows), len(rows))}]
    for chosen in step.passes(lengths[alive]):
        if chosen is None:
            join_pass(step, samples, frozenset(fields), backward=True)
            continue
        places = alive[chosen]
        of_pass = Scored.from_tensors({name: value[places] for name, value in fields.items()})
        scored_again = step.domain.backward(samples, rows[places], of_pass)
        statistics.append(pass_statistics(scored_again, plan.acted, places, lengths[places], on_policy=on_policy))
    return statistics


def join_pass(step: Step, samples: Samples, requires: frozenset[str], *, backward: bool = False) -> None:
    """Makes a pass that adds nothing, with any one member. Where the weights are spread, every process has to make as
    many passes as the one with the most members. Dropout draws nothing for this pass.

    Args:
        samples: at least one member or demonstration.
        requires: names of the fields of the pass.
        backward: whether the others call `backward`. A domain may cut it into passes of its own, and make them in
            another order than those of `score`, which the others call if this is false.
    """
    device = samples.mask.device
    first = torch.zeros(1, dtype=torch.long, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if backward:
            zeros = torch.zeros_like(samples.old_log_prob[first])
            fields = {name: zeros[:, 0] if name.startswith("auxiliary.") else zeros for name in requires | {"log_prob"}}
            step.domain.backward(samples, first, Scored.from_tensors(fields))
            return
        fields = step.domain.score(samples, first, requires).tensors()
        scored = [value for value in fields.values() if value.requires_grad]
        if scored:
            torch.autograd.backward(scored, [torch.zeros_like(value) for value in scored])


def step_demonstrations(step: Step, number: int = 0) -> Samples | None:
    """Returns the demonstrations of this optimiser step; `None` where the supervised term has no coefficient."""
    if step.objective.auxiliary["supervised"].at(step.state.objective.step) == 0:
        return None
    # The key of the draw counts the optimiser steps of the run. The objective's count begins anew with a stage, and
    # would repeat draws.
    draw_key = step.state.progress.num_attempts + number
    size = step.recipe.train.demonstrations_per_step
    return step.domain.demonstrations(size, streams=step.streams, step=draw_key)


def supervised_gradient(step: Step, samples: Samples) -> PassStatistics:
    """Accumulates the gradient of the supervised term; the sum is divided by the number of its tokens over all
    processes.
    """
    objective = Objective(
        name="supervised",
        policy_weight=Constant(value=0.0),
        auxiliary={"supervised": step.objective.auxiliary["supervised"]},
    )
    share = step.world.share(len(samples))
    rows = torch.arange(share.start, share.stop, device=samples.mask.device)
    counts = samples.auxiliary_count["supervised"][rows]
    # Demonstrations have no decisions to reinforce, only counts to divide by.
    acted = Acted(torch.zeros_like(samples.mask[rows]), samples.old_log_prob[rows], member=rows)
    no_advantage = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
    batch = Batch.of(acted, no_advantage, step.state.objective)
    batch = replace(batch, admitted=torch.zeros_like(batch.admitted), auxiliary_count={"supervised": counts})
    plan = objective.plan(batch, step.state.objective, step.world.sum)
    statistics: PassStatistics = []
    for chosen in step.passes(counts):
        if chosen is None:
            join_pass(step, samples, objective.requires)
            continue
        if step.state.learner.differentiates:
            scored = step.domain.score(samples, rows[chosen], objective.requires)
            loss = objective.loss(scored, plan.select(chosen))
            if loss.total.requires_grad:
                loss.backward()
        else:
            with torch.no_grad():
                scored = step.domain.score(samples, rows[chosen], objective.requires)
            cotangents = objective.cotangents(scored, plan.select(chosen))
            loss = cotangents.loss
            step.domain.backward(samples, rows[chosen], cotangents.scored)
        statistics.append({name: loss.statistics[name] for name in ("loss", "loss_sup")})
    return statistics


def pass_statistics(
    scored: Scored, acted: Acted, places: Tensor, lengths: Tensor, *, on_policy: bool
) -> dict[str, Statistic]:
    """Returns the padding of a pass and, before the first update, how far the policy is from the log-probs recorded
    while it sampled; equal policies differ by rounding only.

    Args:
        scored: the fields of the pass.
        acted: the decisions of the update's members.
        places: the members of the pass among them.
        lengths: decisions of each member of the pass.
        on_policy: whether this is the first update on the batch.
    """
    size = lengths.max() * len(lengths) if len(lengths) else lengths.sum()
    statistics: dict[str, Statistic] = {"padding_share/update": Mean.ratio(size - lengths.sum(), size)}
    if on_policy:
        gap = (scored.log_prob - acted.old_log_prob[places]).abs()
        statistics["sampling/rescoring_difference/mean"] = Mean.of(gap, acted.mask[places])
    return statistics
