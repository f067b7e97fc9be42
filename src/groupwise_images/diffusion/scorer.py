"""The denoiser that draws, and scores transitions and copies: the one that was opened, or its copy whose weights are
sharded over several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import DECODING, MOST_ROWS, SAMPLING, UPDATE, PassSizes, pass_budget
from groupwise.learner.shards import copy_without_weights, move_weights, shard_module
from groupwise.processes import is_out_of_memory
from groupwise_images.diffusion.config import Reduce
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.image_prompts import PromptConditions
from groupwise_images.diffusion.models.files import Adapted
from groupwise_images.diffusion.path import fields
from groupwise_images.diffusion.sampler import Sampler, Step
from groupwise_images.diffusion.transition import Schedule, Transition, transition

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


_CALLS_PARTS_OF_THE_FIRST_BLOCK = {"DiTTransformer2DModel"}
"""Denoisers whose forward pass calls an embedding inside their first block, past the block's own forward pass."""

Fields = dict[str, Tensor]
_Result = TypeVar("_Result")


@final
class Scorer:
    """The denoiser through which every domain of a model draws and scores.

    Args:
        denoiser: the one that was opened.
    """

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser = denoiser
        self._mesh: DeviceMesh | None = None

    @property
    def sharded(self) -> bool:
        """True where the weights are sharded, so that every process must make the same passes."""
        return self._mesh is not None

    def shard(self, mesh: DeviceMesh) -> nn.Module:
        """Returns a copy of the module, sharded block by block, which takes its weights, and draws and scores from then
        on.
        """
        module = copy_without_weights(self.denoiser.module, self.denoiser.module)
        inner = module.denoiser if isinstance(module, Adapted) else module
        shard_module(inner, _blocks(inner), mesh)
        move_weights(self.denoiser.module, module, mesh)
        self._mesh, self.denoiser = mesh, self.denoiser.with_module(module)
        return module

    def apply(self, sizes: PassSizes, compute: Callable[[Tensor], Fields], rows: Tensor) -> Iterable[Fields]:
        """Calls `compute` on slices of `rows`, with gradient where it is on, and returns the results, at least one.

        Where weights are sharded, a process with fewer slices than another repeats its first row; the repetition is
        dropped, or with gradient has the weight 0. Memory that runs out then ends the run, since no process can make
        its passes smaller alone.

        Args:
            sizes: rows of a pass.
            compute: as in `PassSizes.each`; its results are tensors by name.
            rows: the rows as in `PassSizes.each`.
        """
        if self._mesh is None:
            return sizes.apply(compute, rows)
        if not torch.is_grad_enabled():
            return self.draw(sizes, compute, rows)
        parts = sizes.slices(rows)
        num_passes = self._most(parts)
        # Each is computed again in its backward pass where any process has several: gathered weights are freed between.
        again = partial(checkpoint, compute, use_reentrant=False) if num_passes > 1 else compute
        results = [again(part) for part in parts]
        for _ in range(num_passes - len(parts)):
            filler: Fields = again(rows[:1])  # type: ignore[assignment]
            results[0] = {name: _with_zero(value, filler[name]) for name, value in results[0].items()}
        return results

    def slices(self, sizes: PassSizes, rows: Tensor, *, whole: bool = False) -> Iterator[tuple[Tensor, bool]]:
        """Yields the rows of each pass with a gradient, and whether they count: where weights are sharded, a process
        with fewer passes than another repeats its first row, which does not.

        Args:
            sizes: rows of a pass.
            rows: `[N]` or `[N, ...]`.
            whole: takes all in one pass, as a stored graph needs.
        """
        parts = sizes.slices(rows, whole=whole)
        num_fillers = 0 if self._mesh is None else self._most(parts) - len(parts)
        yield from ((rows[:1], False) for _ in range(num_fillers))
        yield from ((part, True) for part in parts)

    def draw(self, sizes: PassSizes, compute: Callable[[Tensor], _Result], rows: Tensor) -> Iterator[_Result]:
        """Calls `compute` without gradient on slices of `rows` and yields the results one by one, at least one.

        Where weights are sharded, a process with fewer slices than another repeats its first row and drops the result.

        Args:
            sizes: rows of a pass.
            compute, rows: as in `PassSizes.each`; every slice makes equally many passes of the denoiser.
        """
        if self._mesh is None:
            yield from sizes.each(SAMPLING, compute, rows)
            return
        parts = rows.split(sizes.rows(SAMPLING))
        # Repetitions come first: whoever takes the last result has made all passes.
        for _ in range(self._most(parts) - len(parts)):
            with torch.no_grad():
                compute(rows[:1])
        for part in parts:
            with torch.no_grad():
                result = compute(part)
            yield result

    def rescored(self, sizes: PassSizes, compute: Callable[[Tensor], Fields], mask: Tensor, elements: int) -> Fields:
        """Computes fields `[B, T]` of all pairs where the mask is true, with gradient where it is on.

        Args:
            sizes: transitions in one pass.
            compute: pairs `[N, 2]` (member, decision) -> fields `[N]` or `[N, D]`.
            mask: `[B, W D]`.
            elements: `D` decisions a transition: 1 unless each element is one.
        """
        pairs = pairs_of(mask, elements)
        return scatter(self.apply(sizes, compute, pairs), pairs, mask, elements)

    def backward(
        self,
        sizes: PassSizes,
        compute: Callable[[Tensor], Fields],
        mask: Tensor,
        elements: int,
        cotangents: Mapping[str, Tensor],
        *,
        whole: bool = False,
    ) -> Fields:
        """Accumulates the gradient of `sum(cotangent * field)`, slice by slice, and returns the fields `[B, T]` without
        gradient.

        Args:
            sizes, compute, mask, elements: as in `rescored`.
            cotangents: name -> `[B, W D]`.
            whole: takes all transitions in one pass, as a stored graph needs.
        """
        pairs = pairs_of(mask, elements)

        def accumulated() -> Iterator[Fields]:
            for part, counts in self.slices(sizes, pairs, whole=whole):
                with torch.enable_grad():
                    values = compute(part)
                total = torch.zeros((), device=mask.device, dtype=torch.float64)
                for name, cotangent in cotangents.items():
                    value = values[name]
                    if value.requires_grad:
                        weight = cotangent.view(len(mask), -1, elements)[part[:, 0], part[:, 1]]
                        weight = weight if counts else torch.zeros_like(weight)
                        total = total + (weight.to(value.dtype) * value.view(len(part), elements)).sum()
                if total.requires_grad:
                    total.backward()
                if counts:
                    yield {name: value.detach() for name, value in values.items()}

        return scatter(accumulated(), pairs, mask, elements)

    def measure(
        self,
        sizes: PassSizes,
        conditions: PromptConditions,
        schedule: Schedule,
        rows_of_model: int,
        reserved_bytes: float,
        memory_remedy: str,
    ) -> None:
        """Finds the rows of every kind of pass that is not known; no gradient is accumulated.

        Args:
            sizes: receive the rows.
            conditions: the conditions of one prompt, with which passes are made.
            schedule: gives a time to predict at.
            rows_of_model: rows of the model that one row takes: several under guidance.
            reserved_bytes: bytes that will be allocated later, such as an optimiser's moments.
            memory_remedy: what to write where memory runs out.

        Raises:
            ConfigError: weights are sharded, and memory ran out.
        """
        denoiser, agree = self.denoiser, self.smallest if self.sharded else None
        trained = [parameter for parameter in denoiser.module.parameters() if parameter.requires_grad]
        budget = pass_budget(denoiser.device, reserved_bytes)
        measure = partial(sizes.measure, device=denoiser.device, budget_bytes=budget)

        def latents(num: int) -> Tensor:
            return torch.zeros(num, *denoiser.latent_shape, dtype=denoiser.latent_dtype, device=denoiser.device)

        def predict(num: int) -> Tensor:
            start = latents(num)
            time = schedule.timestep[:1].to(start).expand(num)
            condition = conditions.select(torch.zeros(num, dtype=torch.long, device=start.device))
            return denoiser.predict(start, time, condition, 2.0 if rows_of_model > 1 else 1.0)

        def differentiate(num: int) -> None:
            with torch.enable_grad():
                torch.autograd.grad(predict(num).sum(), trained, allow_unused=True)

        try:
            with torch.no_grad():
                measure(SAMPLING, predict, most=max(1, MOST_ROWS // rows_of_model), agree=agree)
                measure(DECODING, lambda num: denoiser.decode(latents(num)))
            if trained:
                measure(UPDATE, differentiate, most=None, agree=agree)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise ConfigError(f"memory ran out while passes were measured; write {memory_remedy}") from error

    def smallest(self, number: int) -> int:
        """Returns the smallest of one number a process where weights are sharded; every process must call this method,
        which waits in the run's own group: another process may still judge images.
        """
        least = torch.tensor(number, device=self.denoiser.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least)

    def _most(self, parts: Sequence[Tensor]) -> int:
        """Returns the largest number of parts that any process has; every process must call this method."""
        return -self.smallest(-len(parts))


def _with_zero(value: Tensor, filler: Tensor) -> Tensor:
    """Adds a pass that gets the gradient 0 to the graph of a value."""
    if not value.requires_grad:
        return value
    return value + torch.where(torch.zeros_like(filler, dtype=torch.bool), filler, 0.0).sum()


def _blocks(denoiser: nn.Module) -> Iterator[nn.Module]:
    """Yields the blocks that a denoiser of diffusers calls one after another: the members of its lists of modules, and
    the block between them.
    """
    for name, child in denoiser.named_children():
        if isinstance(child, nn.ModuleList):
            first = 1 if type(denoiser).__name__ in _CALLS_PARTS_OF_THE_FIRST_BLOCK else 0
            yield from list(child)[first:]
        elif name == "mid_block":
            yield child


# The same transitions under the live policy: batched over (member, decision) pairs, in slices where memory asks for
# it.


def pairs_of(mask: Tensor, elements: int) -> Tensor:
    """Lists pairs `[N, 2]`, one transition of all members after the other: in slices of all members the batches are the
    sampler's, and so is every bit of the result.
    """
    return mask.view(len(mask), -1, elements).any(-1).T.nonzero().flip(1)


def scatter(slices: Iterable[Fields], pairs: Tensor, mask: Tensor, elements: int) -> Fields:
    """Writes the fields of pairs to their places in `[B, T]`; 0 elsewhere. A slice without gradient is written before
    the next one is computed.

    Args:
        slices: slices of fields `[N]` or `[N, D]`, in the order of `pairs`.
        pairs: `[N, 2]`, member and decision.
        mask: `[B, W D]`.
    """
    shape = (len(mask), mask.shape[1] // elements, elements)
    scattered: Fields = {}
    with_gradient: dict[str, list[Tensor]] = {}
    start = 0
    for part in slices:
        values = {name: value.view(-1, elements) for name, value in part.items()}
        stop = start + len(next(iter(values.values())))
        for name, value in values.items():
            if value.requires_grad:
                with_gradient.setdefault(name, []).append(value)
                continue
            if name not in scattered:
                scattered[name] = value.new_zeros(shape)
            scattered[name][pairs[start:stop].unbind(1)] = value
        start = stop
    for name, parts in with_gradient.items():
        value = torch.cat(parts)
        scattered[name] = value.new_zeros(shape).index_put(pairs.unbind(1), value)
    return {name: value.flatten(1) for name, value in scattered.items()}


def transitions(
    denoiser: Denoiser,
    schedule: Schedule,
    sampler: Sampler,
    payload: Mapping[str, Any],
    condition: PromptConditions,
    prompt: Tensor,
    pairs: Tensor,
) -> tuple[Transition, Tensor]:
    """Computes the Gaussians of pairs `[N, 2]` under the active weights, and returns them with the latents that were
    drawn from them.

    Args:
        denoiser, schedule, sampler: as they were when the members were sampled.
        payload: `visited`, `first` and `guidance` of the members.
        condition: the condition of the prompts.
        prompt: `[B]`, the place of each member's prompt in `condition`.
        pairs: member and decision.
    """
    member, decision = pairs[:, 0], pairs[:, 1]
    latents, after = payload["visited"][member, decision], payload["visited"][member, decision + 1]
    index = (payload["first"][member] + decision).to(schedule.time.device)
    timestep = schedule.timestep[index].to(latents)
    prediction = predict(denoiser, latents, timestep, condition, prompt[member], payload["guidance"][member])
    return transition(sampler, denoiser.parametrisation, latents, prediction, Step.of(schedule, index)), after


def predict(
    denoiser: Denoiser, latents: Tensor, timestep: Tensor, condition: PromptConditions, prompt: Tensor, guidance: Tensor
) -> Tensor:
    """Predicts `[N, ...]`, with one pass for each strength of guidance among the rows.

    Args:
        latents, timestep: `[N, ...]` and `[N]`.
        condition: the condition of the prompts.
        prompt: `[N]`, the place of each row's prompt in `condition`.
        guidance: `[N]`.
    """
    prediction = None
    for value in guidance.unique().tolist():
        rows = (guidance == value).nonzero()[:, 0]
        part_prediction = denoiser.predict(latents[rows], timestep[rows], condition.select(prompt[rows]), value)
        prediction = (
            part_prediction
            if len(rows) == len(latents)
            else (torch.zeros_like(latents) if prediction is None else prediction).index_copy(0, rows, part_prediction)
        )
    assert prediction is not None
    return prediction


def scored_fields(
    gaussians: Transition,
    after: Tensor,
    payload: Mapping[str, Any],
    pairs: Tensor,
    reduce: Reduce,
    requires: frozenset[str],
) -> Fields:
    """Computes every field of `Scored` that `requires` names, of pairs `[N, 2]`.

    Args:
        gaussians, after, reduce, requires: as in `fields`.
        payload: `mean` and `reference_mean` of the members, where a field reads them.
        pairs: member and decision.
    """
    values = fields(gaussians, after, reduce, requires)
    if "mean_shift" in requires:
        values["mean_shift"] = gaussians.shift(payload["mean"][pairs[:, 0], pairs[:, 1]], after, reduce)
    if "old_divergence" in requires:
        values["old_divergence"] = gaussians.divergence(payload["mean"][pairs[:, 0], pairs[:, 1]], reduce).detach()
    if "exact_divergence" in requires:
        values["exact_divergence"] = gaussians.divergence(payload["reference_mean"][pairs[:, 0], pairs[:, 1]], reduce)
    return values
