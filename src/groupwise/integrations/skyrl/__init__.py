"""Objectives inside SkyRL: `register("gspo")` puts the loss and the advantages of one into SkyRL's two registries."""

from groupwise.integrations.skyrl.advantage import advantage_estimator
from groupwise.integrations.skyrl.keys import overrides
from groupwise.integrations.skyrl.policy_loss import policy_loss
from groupwise.integrations.skyrl.register import register

__all__ = ["advantage_estimator", "overrides", "policy_loss", "register"]
