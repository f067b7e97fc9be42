"""Objectives inside verl: `register("gspo")` makes one a policy loss and an advantage estimator of verl's, and returns
the overrides of verl's keys that go with it; what verl cannot carry is refused with its reason.

Needs nothing of groupwise but torch and pydantic, so that it can be installed with verl's own pins.
"""

from groupwise_trainers.verl.register import advantage_estimator, policy_loss, register

__all__ = ["advantage_estimator", "policy_loss", "register"]
