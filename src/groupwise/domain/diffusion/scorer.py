"""The denoiser that draws, and scores transitions and copies: the one that was opened, or its copy whose weights are
sharded over several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from groupwise.domain.diffusion.denoiser import Denoiser
from groupwise.domain.diffusion.models.lora import Adapted
from groupwise.domain.pass_sizes import SAMPLING, PassSizes
from groupwise.learner.shards import copy_without_weights, move_weights, shard_module

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
            compute: as of `PassSizes.each`; its results are tensors by name.
            rows: as of `PassSizes.each`.
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
            compute, rows: as of `PassSizes.each`; every slice makes equally many passes of the denoiser.
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

    def smallest(self, number: int) -> int:
        """Returns the smallest of one number a process where weights are sharded; every process must call this method,
        which waits in the run's own group: another process may still judge images.
        """
        least = torch.tensor(number, device=self.denoiser.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least)

    def _most(self, parts: Sequence[Tensor]) -> int:
        """Returns the number of parts of the process that has most of them; every process must call this method."""
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
