"""Objectives inside TRL's trainer: `GRPOTrainer(objective="gspo", ...)`, and `objective_of(config)`, which
translates a `GRPOConfig` into our slots; `from_trl(config)`, which translates it into the arguments of
`groupwise.train`.
"""

try:
    import trl
except ImportError as error:
    raise ImportError(
        "groupwise_trainers.trl needs TRL 1.16 or a later 1.x, which is not installed; write: pip install"
        " 'trl>=1.16,<2'"
    ) from error

from groupwise_trainers.trl.version import too_different

if reason := too_different(trl.__version__):
    raise ImportError(reason)

from groupwise_trainers.trl.experiment import FromTRL, from_trl
from groupwise_trainers.trl.keys import objective_of
from groupwise_trainers.trl.trainer import GRPOTrainer

__all__ = ["FromTRL", "GRPOTrainer", "from_trl", "objective_of"]
