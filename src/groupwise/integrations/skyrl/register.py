"""Registering an objective with SkyRL: once, in the program that starts its trainer; SkyRL carries the functions to its
workers by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.integrations.foreign import module_of
from groupwise.integrations.skyrl.advantage import advantage_estimator
from groupwise.integrations.skyrl.keys import overrides
from groupwise.integrations.skyrl.policy_loss import policy_loss
from groupwise.objective import Objective

_MODULE = "skyrl.backends.skyrl_train.utils.ppo_utils"


def register(
    objective: str | Objective, edits: Mapping[str, Any] | None = None, name: str | None = None, estimator: bool = True
) -> list[str]:
    """Registers an objective as a policy loss and an advantage estimator of SkyRL.

    Args:
        objective: a preset's name, or an `Objective`.
        edits: dotted changes of a preset.
        name: the name in SkyRL; unset takes `groupwise_` and the objective's name.
        estimator: false registers the loss alone, for use with an advantage estimator of SkyRL.

    Returns:
        the overrides for SkyRL's command line.

    Raises:
        ImportError: SkyRL is not installed, or another version of it.
        ValueError: the objective needs something that SkyRL cannot give.
    """
    algorithms = module_of(_MODULE, ("PolicyLossRegistry", "AdvantageEstimatorRegistry"), "skyrl", "skyrl==0.3.0")
    if isinstance(objective, str):
        objective = Objective.preset(objective, **(edits or {}))
    elif edits:
        raise ValueError(
            "edits change a preset by its name; write register('grpo', edits=...), or change the Objective itself"
        )
    registered_name = name or f"groupwise_{objective.name.replace('+', '_')}"
    functions: dict[Any, Any] = {algorithms.PolicyLossRegistry: policy_loss(objective)}
    if estimator:
        functions[algorithms.AdvantageEstimatorRegistry] = advantage_estimator(objective)
    for registry, function in functions.items():
        # SkyRL refuses a name twice, and a notebook registers again on every reload.
        if registered_name in registry.list_available():
            registry.unregister(registered_name)
        registry.register(registered_name, function)
    return overrides(objective, registered_name, estimator)
