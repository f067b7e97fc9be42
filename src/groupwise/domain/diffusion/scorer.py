"""The denoiser that scores transitions and copies: the one that samples, or its copy whose weights are sharded over
several processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.domain.diffusion.config import DiffusionConfig
from groupwise.domain.diffusion.denoiser import Denoiser
from groupwise.domain.diffusion.models.lora import Adapted
from groupwise.domain.pass_sizes import SAMPLING, PassSizes
from groupwise.learner.shards import shard_module

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_CALLS_PARTS_OF_THE_FIRST_BLOCK = {"DiTTransformer2DModel"}
"""Denoisers whose forward pass calls an embedding inside their first block, past the block's own forward pass."""

_Result = TypeVar("_Result")


@final
class Scorer:
    """The denoiser through which every domain of a model scores.

    Args:
        denoiser: the one that samples.
    """

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser = denoiser
        self._mesh: DeviceMesh | None = None
        self._configs: list[DiffusionConfig] = []

    @property
    def sharded(self) -> bool:
        """True where the weights are sharded, so that every process must make the same passes."""
        return self._mesh is not None

    def serve(self, config: DiffusionConfig) -> None:
        """Notes the settings of a domain that scores through this object."""
        self._configs.append(config)

    def shard(self, mesh: DeviceMesh) -> nn.Module:
        """Returns a copy of the module, sharded block by block; transitions are scored through it from then on.

        Raises:
            ConfigError: a domain cuts its passes by the number of transitions, which differs between processes.
        """
        if at_once := next(
            (config.transitions_at_once for config in self._configs if config.transitions_at_once), None
        ):
            raise ConfigError(
                f'train.sharding = "full": domain.transitions_at_once = {at_once} gives processes different numbers of'
                " passes; leave it out and write train.micro_batch_members = 1, or a small number"
            )
        module = copy.deepcopy(self.denoiser.module)
        inner = module.denoiser if isinstance(module, Adapted) else module
        shard_module(inner, _blocks(inner), mesh)
        self._mesh, self.denoiser = mesh, self.denoiser.with_module(module)
        return module

    def apply(self, sizes: PassSizes, compute: Callable[[Tensor], _Result], rows: Tensor) -> list[_Result]:
        """Calls `compute` on slices of `rows`, with gradient where it is on.

        Args:
            sizes: rows of a pass.
            compute, rows: as of `PassSizes.join`.
        """
        return sizes.with_gradient(compute, rows) if torch.is_grad_enabled() else self.join(sizes, compute, rows)

    def join(self, sizes: PassSizes, compute: Callable[[Tensor], _Result], rows: Tensor) -> list[_Result]:
        """Calls `compute` without gradient on slices of `rows`, at least one, and returns the results. Where weights
        are sharded, a process with fewer slices than another repeats its first row, whose result is dropped; memory
        that runs out then ends the run, since no process can make its passes smaller alone.

        Args:
            sizes: rows of a pass.
            compute, rows: as of `PassSizes.join`.
        """
        if self._mesh is None:
            return sizes.join(SAMPLING, compute, rows)
        parts = rows.split(sizes.rows(SAMPLING))
        most = torch.tensor(len(parts), device=rows.device)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self._mesh.get_group())
        with torch.no_grad():
            results = [compute(part) for part in parts]
            for _ in range(int(most) - len(parts)):
                compute(rows[:1])
        return results


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
