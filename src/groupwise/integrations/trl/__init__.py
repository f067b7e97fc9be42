"""Every objective inside TRL's trainer: `GRPOTrainer(objective="dapo", ...)`, and `objective_of(config)`, which
translates a `GRPOConfig` into our slots.
"""

from __future__ import annotations

try:
    import trl
except ImportError as error:
    raise ImportError(
        "groupwise.integrations.trl needs TRL 1.16, which is not installed; write: pip install 'trl>=1.16,<1.17'"
    ) from error

if trl.__version__.split(".")[:2] != ["1", "16"]:
    raise ImportError(
        f"groupwise.integrations.trl is written for TRL 1.16, and {trl.__version__} is installed; write: pip install"
        " 'trl>=1.16,<1.17'"
    )

from groupwise.integrations.trl.keys import objective_of
from groupwise.integrations.trl.trainer import GRPOTrainer

__all__ = ["GRPOTrainer", "objective_of"]
