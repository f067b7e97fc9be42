"""A causal LM whose weights are sharded over several processes, and its scoring.

Body and head run inside one forward pass of the whole model, so that a head that is tied to the embedding is one weight
there, and its gradient one sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone, router_remark
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise.config import ConfigError
from groupwise.learner.shards import copy_without_weights, inside, move_weights, shard_module

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@final
class ShardedLM:
    """A causal LM in shards, which takes the weights of a plain one. Every process must make the same calls, and after
    a call with gradient one backward pass.

    Args:
        backbone: the plain model, which holds no weights afterwards.
        mesh: the processes.

    Raises:
        ConfigError: the model has no list of layers, or a mixture of experts.
    """

    def __init__(self, backbone: Backbone, mesh: DeviceMesh) -> None:
        check_spreads(backbone.config)
        # Whether the model can be packed is tried now: the trial calls parts of the model, which shards do not allow.
        scoring.can_pack(backbone)
        self.backbone = copy_without_weights(backbone, backbone.model)
        self.backbone.sharded = True
        shard_module(self.backbone.model, _layers(self.backbone.body), mesh)
        move_weights(backbone.model, self.backbone.model, mesh)

    @property
    def model(self) -> nn.Module:
        """The sharded model."""
        return self.backbone.model

    def score(self, inputs: ScoringInputs) -> dict[str, Tensor]:
        """Scores completions as `groupwise.causal_lm.scoring.score` does. The fields always carry a gradient into every
        weight, where the caller has not switched it off: processes reduce their gradients together.
        """
        read, factor = _at_least_one(inputs)

        def compute() -> dict[str, Tensor]:
            fields = scoring.score(self.backbone, read)
            # FSDP warns about views, because a change in place removes its hook.
            return {name: value.clone() for name, value in fields.items()}

        fields = inside(self.model, compute)
        return fields if factor else {name: value * 0.0 for name, value in fields.items()}

    def backward(self, inputs: ScoringInputs, cotangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Accumulates gradients as `groupwise.causal_lm.scoring.backward` does."""
        read, factor = _at_least_one(inputs)
        if not factor:
            cotangents = {name: torch.zeros_like(value) for name, value in cotangents.items()}

        def compute() -> tuple[dict[str, Tensor], Tensor, Tensor]:
            fields, hidden, gradient = scoring.head_backward(self.backbone, read, cotangents)
            # FSDP reduces gradients in the backward pass, so the states need one even where only the head is trained.
            return fields, hidden if hidden.requires_grad else hidden.requires_grad_(), gradient

        with torch.enable_grad():
            fields, hidden, gradient = inside(self.model, compute)
        torch.autograd.backward([hidden], [gradient])
        return fields if factor else {name: value * 0.0 for name, value in fields.items()}


def check_spreads(config: Any) -> None:
    """Refuses a model that cannot be spread, by its configuration alone.

    Args:
        config: the model's, as transformers has it.

    Raises:
        ConfigError: a mixture of experts.
    """
    if router_remark(config):
        raise ConfigError(
            'train.sharding = "full": the model is a mixture of experts, of which processes would reduce different'
            " gradients; write train.sharding = none"
        )


def _at_least_one(inputs: ScoringInputs) -> tuple[ScoringInputs, bool]:
    """Returns the inputs and true. If the mask is false everywhere, returns inputs with one true entry, and false."""
    if bool(inputs.mask.any()):
        return inputs, True
    mask = inputs.mask.clone()
    mask[0, 0] = True
    return replace(inputs, mask=mask), False


def _layers(body: nn.Module) -> Iterable[nn.Module]:
    """Returns the layers of a body: its longest list of modules."""
    lists: list[Any] = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ConfigError(
            f'train.sharding = "full": {type(body).__name__} has no list of layers to spread; write train.sharding ='
            " none"
        )
    return max(lists, key=len)
