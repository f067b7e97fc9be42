"""The protocol of a learner: the one owner of a policy's weights and of the optimiser that steps them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from groupwise.learner.optimiser_source import OptimiserSource

OFFERS = {
    "copies": "keeps a second set of its weights",
    "mixing": "mixes a second set of weights with the live ones",
    "pull": "pulls its weights to a second set of them",
    "adapter": "switches its adapter off for a reference",
    "clipping": "clips gradients by their norm",
    "moments": "forgets the optimiser's moments",
    "processes": "learns from several processes",
    "checkpointing": "recomputes activations",
    "rehearsal": "measures the memory of a pass",
    "optimisers": "takes another optimiser than its own",
    "sharding": "spreads its weights over the processes",
}
"""Abilities that a learner may offer: name -> the ability as a verb phrase, for messages such as `it mixes ...`."""


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of one optimiser step.

    Args:
        learning_rate: the rate of this step.
        beta1, beta2: decay of AdamW's two moments; another optimiser reads the rate and the norm alone.
        eps: added to the root of the second moment.
        weight_decay: the decay of matrices; vectors have none.
        max_grad_norm: the norm that the gradient is clipped to; `None` clips nothing.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float | None = None


@dataclass(frozen=True)
class Sizes:
    """The number of weights of a learner.

    Args:
        trained: number of weights that the optimiser steps.
        total: number of all weights, trained or not.
        by_dtype: name of a dtype -> number of trained weights of that dtype, for remarks about precision.
        float16: whether any weight through which a gradient flows, trained or not, is float16.
    """

    trained: int
    total: int
    by_dtype: Mapping[str, int] = field(default_factory=dict)
    float16: bool = False


class Processes(Protocol):
    """The processes of a run, as far as a learner needs them."""

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replaces every gradient by its sum over processes.

        Args:
            parameters: parameters that own the gradients, in the same order on every process.
        """
        ...


class WeightCopy(Protocol):
    """A second set of the trained weights, copied at one moment of the run: a reference, or a running average.

    The copy lies where the learner's weights are, and need not reach the process of the training loop.
    """

    @property
    def holds_weights(self) -> bool:
        """True where the copy has weights of its own, rather than an adapter to switch off."""
        ...

    def active(self) -> AbstractContextManager[None]:
        """Makes the domain sample and score with these weights, without gradient, within the block; afterwards, also
        after an exception, the live ones are back.
        """
        ...

    def mix(self, alpha: float) -> None:
        """Moves the copy towards the live weights: `copy <- alpha theta + (1 - alpha) copy` (`"mixing"`).

        The result is exact at 0 and 1.

        Args:
            alpha: the live weights' share, 0 to 1.
        """
        ...

    def distance(self) -> float:
        """Returns `|theta - copy|`, the Euclidean distance over all trained parameters."""
        ...

    def pull(self, coefficient: float) -> float:
        """Adds the gradient of `coefficient |theta - copy|^2 / 2` to the accumulated one (`"pull"`).

        Returns:
            the term's value.
        """
        ...

    def record(self) -> Mapping[str, Any]:
        """Returns the state of the copy, as `Learner.record` does for the live weights; empty without weights."""
        ...

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes back what `record` returned.

        Raises:
            ValueError: the record is of other weights.
        """
        ...


class Learner(Protocol):
    """The one owner of a policy's weights and of their optimiser.

    `groupwise.Domain` makes a local one of its `module`. A domain whose weights live elsewhere (another process, shards
    on many devices, a server that trains) sets `learner` in place of it. The loop calls

        zero_gradients, then Domain.backward or autograd through Domain.score, reduce_gradients, WeightCopy.pull, step

    once for every optimiser step, and touches the weights only through the learner. With several processes each of
    them makes the same calls in the same order, so that any call may be collective.

    Attributes:
        offers: names out of `OFFERS`. A run that needs an ability which the learner does not offer is refused before
            anything is computed.
        differentiates: whether the fields of `Domain.score` carry a gradient that arrives at these weights. If not,
            every gradient goes as cotangents through `Domain.backward`, which accumulates it where the weights are.

    Example:
        >>> from groupwise.learner.local import LocalLearner
        >>> learner: Learner = LocalLearner(nn.Linear(1, 1, bias=False))
        >>> sorted(OFFERS.keys() - learner.offers)
        ['adapter', 'checkpointing', 'sharding']
    """

    @property
    def offers(self) -> frozenset[str]: ...

    @property
    def differentiates(self) -> bool: ...

    def sizes(self) -> Sizes:
        """Counts weights, all shards of them together."""
        ...

    def train(self) -> None:
        """Switches to training mode (dropout draws)."""
        ...

    def eval(self) -> None:
        """Switches to evaluation mode."""
        ...

    def zero_gradients(self) -> None:
        """Forgets every accumulated gradient."""
        ...

    def reduce_gradients(self, world: Processes) -> None:
        """Sums accumulated gradients over processes, unless the backward pass has done that already."""
        ...

    def step(self, numbers: StepNumbers) -> float:
        """Takes one optimiser step with the accumulated gradient `g`, clipped to `numbers.max_grad_norm`, and forgets
        `g`.

        Where `|g|` is 0 or not finite no step is taken: weights and moments stay as they are.

        Returns:
            `|g|` before clipping, over all weights and shards.
        """
        ...

    def use_optimiser(self, source: OptimiserSource | None) -> None:
        """Makes the optimiser of the next steps (`"optimisers"`); the present one stays where it is the same.

        Args:
            source: the class and its arguments; None for the learner's own optimiser.

        Raises:
            ConfigError: the class cannot be loaded, or does not take the weights.
        """
        ...

    def forget_moments(self) -> None:
        """Begins the optimiser anew (`"moments"`)."""
        ...

    def copy(self, *, adapter_off: bool = False) -> WeightCopy:
        """Returns a second set of the trained weights, as they are now (`"copies"`).

        Args:
            adapter_off: the weights without their adapter, which are not copied (`"adapter"`).
        """
        ...

    def record(self) -> Mapping[str, Any]:
        """Returns everything that a resumed run needs of weights and optimiser: a tree of tensors and JSON values.

        The tensors may be the live ones: the caller writes or copies them before the next step. Where the state is not
        made of tensors of this process, the record holds the path of a file that the learner has saved and that
        `restore` reads. Every process calls this method. The record of the first process is written, and with it the
        shards of all, where tensors are sharded.
        """
        ...

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes back what `record` returned; tensors that were sharded come as
        `groupwise.learner.shards.StoredTensor`.

        Raises:
            ValueError: the record is of another model.
        """
        ...

    def save(self, folder: Path) -> None:
        """Writes the live weights for use without a run; within `WeightCopy.active` those of the copy.

        Args:
            folder: path of an existing empty folder.
        """
        ...

    def load(self, folder: Path) -> None:
        """Loads the weights that `save` wrote.

        Raises:
            ValueError, OSError, RuntimeError: the folder holds no such weights, or weights of another shape.
        """
        ...

    def fingerprint(self) -> str:
        """Returns a hash of every weight, the same on every process that holds the same weights."""
        ...

    def checkpoint_activations(self, active: bool) -> None:
        """Switches the recomputing of activations (`"checkpointing"`); `False` asks nothing of a learner without it.

        Args:
            active: whether activations are recomputed in the backward pass.
        """
        ...

    def shard(self, device: torch.device) -> None:
        """Spreads weights, gradients and moments over all processes, before the first step (`"sharding"`). Each of them
        holds the same weights before.

        Args:
            device: the device of this process.

        Raises:
            ConfigError: the model cannot be spread.
        """
        ...

    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> AbstractContextManager[None]:
        """Gives every process the whole live weights within the block, so that each may sample, evaluate or save
        without the others; does nothing where the weights are not spread. Every process enters the block.

        Args:
            on_cpu: whether they are in the memory of the machine, for weights that do not fit on a device; otherwise on
                the device of the process.
            here: whether this process needs them; otherwise it gives its shards to the others and holds no more than
                one weight at a time.
        """
        ...

    def rehearsal(self) -> AbstractContextManager[int]:
        """Runs the passes of the block in training mode and undoes them: gradients, mode and buffers are afterwards as
        before (`"rehearsal"`). The block gets the bytes that the optimiser's first step will still add.
        """
        ...

    def close(self) -> None:
        """Ends the processes and connections of the learner; a second call does nothing."""
        ...
