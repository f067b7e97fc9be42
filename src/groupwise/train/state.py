"""Everything that changes while a run goes on, and its way into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from pydantic import TypeAdapter
from torch import nn

from groupwise import streams
from groupwise.objective import ObjectiveState
from groupwise.reference import ReferenceConfig
from groupwise.reference.policy import ReferencePolicy
from groupwise.train.distributed import World
from groupwise.train.progress import Progress


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
    """

    progress: Progress
    objective: ObjectiveState
    optimiser: torch.optim.Optimizer
    reference: ReferencePolicy
    module: nn.Module

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
            "generators": world.gather(streams.capture()),
            "metrics_length": metrics_length,
        }

    def restore(self, record: Mapping[str, Any], world: World) -> None:
        """Takes a record back. The reference must be of the record's kind already.

        Raises:
            ValueError: the record is of another model or of another number of processes.
        """
        load_tensors(self.module, record["weights"])
        self.progress = Progress.from_record(record["progress"])
        self.objective = ObjectiveState.model_validate(record["objective"])
        self.optimiser.load_state_dict(record["optimiser"])
        self.reference.restore(record["reference"])
        if len(record["generators"]) == world.size:
            streams.restore(record["generators"][world.rank])


def trained_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """What training changes: parameters with `requires_grad`, and buffers."""
    trained: dict[str, torch.Tensor] = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    return trained | dict(module.named_buffers())


@torch.no_grad()
def load_tensors(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors into the module's own, in place.

    Raises:
        ValueError: names or shapes differ.
    """
    own = trained_tensors(module)
    if set(own) != set(tensors):
        raise ValueError(f"the checkpoint and this model differ in {sorted(set(own) ^ set(tensors))[:3]}; resume with the configuration the run began with")
    for name, tensor in tensors.items():
        if own[name].shape != tensor.shape:
            raise ValueError(f"the checkpoint's {name} is {list(tensor.shape)} and this model's {list(own[name].shape)}; resume with the same model")
        own[name].copy_(tensor)


def reference_config(record: Mapping[str, Any]) -> ReferenceConfig:
    """The kind of reference that a record's reference is of."""
    return TypeAdapter(ReferenceConfig).validate_python(record["config"])
