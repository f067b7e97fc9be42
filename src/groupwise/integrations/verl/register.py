"""Registering an objective with verl: once in every process, by a module that verl imports
(`VERL_USE_EXTERNAL_MODULES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.integrations.foreign import module_of
from groupwise.integrations.verl.advantage import advantage_estimator
from groupwise.integrations.verl.keys import overrides
from groupwise.integrations.verl.policy_loss import policy_loss
from groupwise.objective import Objective


def register(
    objective: str | Objective, edits: Mapping[str, Any] | None = None, name: str | None = None, estimator: bool = True
) -> list[str]:
    """Registers an objective as a policy loss and an advantage estimator of verl.

    Args:
        objective: a preset's name, or an `Objective`.
        edits: dotted changes of a preset.
        name: the name in verl; unset takes `groupwise_` and the objective's name.
        estimator: false registers the loss alone, for use with an advantage estimator of verl.

    Returns:
        the overrides for verl's command line.

    Raises:
        ImportError: verl is not installed, or another version of it.
        ValueError: the objective needs something that verl cannot give.
    """
    core = algorithms()
    if isinstance(objective, str):
        objective = Objective.preset(objective, **(edits or {}))
    elif edits:
        raise ValueError(
            "edits change a preset by its name; write register('grpo', edits=...), or change the Objective itself"
        )
    verl_name = name or f"groupwise_{objective.name.replace('+', '_')}"
    loss = policy_loss(objective)
    if estimator:
        estimate = advantage_estimator(objective)
        # verl refuses another function under a registered name, and a notebook registers again on every reload.
        core.ADV_ESTIMATOR_REGISTRY.pop(verl_name, None)
        core.register_adv_est(verl_name)(estimate)
    core.register_policy_loss(verl_name)(loss)
    return overrides(objective, verl_name, estimator)


def algorithms() -> Any:
    """Imports verl's module of policy losses and advantage estimators.

    Raises:
        ImportError: verl is not installed, or another version of it, with what to install.
    """
    needed = ("ADV_ESTIMATOR_REGISTRY", "register_adv_est", "register_policy_loss")
    return module_of("verl.trainer.ppo.core_algos", needed, "verl", "verl==0.9.1")
