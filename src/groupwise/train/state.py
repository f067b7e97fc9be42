"""Everything that changes while a run goes on, and its way into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import torch
from pydantic import TypeAdapter
from torch import nn

from groupwise import streams
from groupwise.objective import ObjectiveState
from groupwise.reference import AbsentReference, EmaReference, ReferenceConfig
from groupwise.reference.policy import ReferencePolicy
from groupwise.train.distributed import World
from groupwise.train.progress import Progress
from groupwise.train.reward_history import RewardHistory
from groupwise.train.weight_average import WeightAverage


@final
@dataclass
class TrainState:
    """The state of a run.

    Args:
        progress: counters.
        objective: the objective's own state.
        optimiser: with its moments.
        reference: the reference policy.
        module: the trained module.
        average: the running average of its weights, absent where none is kept.
        history: what prompts earned before, empty where nothing reads it.
        reward_memory: what rewards remember of what they saw, by name, JSON-able; empty where none does.
    """

    progress: Progress
    objective: ObjectiveState
    optimiser: torch.optim.Optimizer
    reference: ReferencePolicy
    module: nn.Module
    average: ReferencePolicy = field(init=False)
    history: RewardHistory = field(default_factory=RewardHistory)
    reward_memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.average = ReferencePolicy(AbsentReference(), self.module)

    def begin_average(self, config: WeightAverage | None) -> None:
        """Begins an average at the weights as they are, ends it, or goes on with the one that is kept already.

        Args:
            config: of the stage that begins.
        """
        if (config is not None) != self.average.present:
            self.average = ReferencePolicy(AbsentReference() if config is None else EmaReference(), self.module)
            self.progress.average_step = 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within the block the module has its averaged weights, where an average is kept."""
        with self.average.active() if self.average.present else nullcontext():
            yield

    def record(self, world: World, metrics_length: int) -> dict[str, Any]:
        """Everything a bit-exact resume needs, from all processes; every process must call it.

        Args:
            world: the processes; each has random generators of its own (dropout).
            metrics_length: bytes of `metrics.jsonl` that belong to it.
        """
        return {
            "progress": self.progress.record(),
            "objective": self.objective.model_dump(mode="json"),
            "weights": trained_tensors(self.module),
            "optimiser": self.optimiser.state_dict(),
            "reference": {**self.reference.state(), "config": self.reference.config.model_dump(mode="json")},
            "average": {**self.average.state(), "config": self.average.config.model_dump(mode="json")},
            "history": self.history.record(),
            "reward_memory": self.reward_memory,
            "generators": world.gather(streams.capture()),
            "metrics_length": metrics_length,
        }

    def restore(self, record: Mapping[str, Any], world: World) -> None:
        """Takes a record back. The reference must be of the record's kind already.

        The global generators (dropout) come back only where the record is of as many processes; of another number it
        resumes, not bit for bit.

        Args:
            record: what `record` gave.
            world: the processes now.

        Raises:
            ValueError: the record is of another model.
        """
        load_tensors(self.module, record["weights"])
        self.progress = Progress.from_record(record["progress"])
        self.objective = ObjectiveState.model_validate(record["objective"])
        self.optimiser.load_state_dict(record["optimiser"])
        self.reference.restore(record["reference"])
        self.average = ReferencePolicy(reference_config(record["average"]), self.module)
        self.average.restore(record["average"])
        self.history = RewardHistory.from_record(record["history"])
        self.reward_memory = dict(record["reward_memory"])
        if len(record["generators"]) == world.size:
            streams.restore(record["generators"][world.rank])


def trained_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """What training changes: parameters with `requires_grad`, and buffers.

    Args:
        module: any.

    Example:
        >>> sorted(trained_tensors(nn.BatchNorm1d(1)))
        ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """
    trained: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    return trained | dict(module.named_buffers())


@torch.no_grad()
def load_tensors(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors into the module's own, in place.

    Args:
        module: receives them.
        tensors: by name, as `trained_tensors` gave them.

    Raises:
        ValueError: names or shapes differ.

    Example:
        >>> load_tensors(nn.Linear(1, 1), {"weight": torch.zeros(1, 1)})
        Traceback (most recent call last):
        ValueError: the checkpoint and this model differ in ['bias']
    """
    own = trained_tensors(module)
    if set(own) != set(tensors):
        raise ValueError(f"the checkpoint and this model differ in {sorted(set(own) ^ set(tensors))[:3]}")
    for name, tensor in tensors.items():
        if own[name].shape != tensor.shape:
            raise ValueError(
                f"the checkpoint's {name} is {list(tensor.shape)} and this model's {list(own[name].shape)}"
            )
        own[name].copy_(tensor)


def reference_config(record: Mapping[str, Any]) -> ReferenceConfig:
    """The kind of reference that a record's reference is of.

    Args:
        record: what a checkpoint keeps of a reference.

    Example:
        >>> reference_config({"config": {"kind": "frozen"}}).kind
        'frozen'
    """
    return TypeAdapter(ReferenceConfig).validate_python(record["config"])
