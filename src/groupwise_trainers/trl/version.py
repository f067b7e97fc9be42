"""The versions of TRL that the trainer goes with: 1.16, for which it is written, and later 1.x that still have every
key and method that it builds on.
"""

import re
from collections.abc import Iterator, Set

WRITTEN_FOR = (1, 16)
METHODS = (
    "_tokenize_prompts",
    "_calculate_rewards",
    "_generate_and_score_completions",
    "_compute_loss",
    "_get_per_token_logps_and_entropies",
    "_save_checkpoint",
    "_load_optimizer_and_scheduler",
)
"""Methods of TRL's trainer that ours extends or calls. One of another name would never be called, in silence."""


def too_different(version: str) -> str | None:
    """Returns why a TRL of another major version, or one older than 1.16, is refused, and `None` for the others.

    Example:
        >>> too_different("1.17.0") is None, too_different("1.9.0") is None
        (True, False)
    """
    numbers = _numbers(version)
    if numbers[:1] == WRITTEN_FOR[:1] and numbers >= WRITTEN_FOR:
        return None
    return (
        f"groupwise_trainers.trl goes with TRL 1.16 and later versions 1.x, and {version} is installed; write: pip"
        " install 'trl>=1.16,<2'"
    )


def missing(trainer: type, keys: Set[str], decided: Set[str]) -> Iterator[str]:
    """Yields what an installed TRL lacks of what the trainer builds on.

    Args:
        trainer: TRL's `GRPOTrainer`.
        keys: the fields of its `GRPOConfig`.
        decided: the keys that an objective decides.
    """
    yield from (f"GRPOConfig.{name}" for name in sorted(decided - keys))
    yield from (f"GRPOTrainer.{name}" for name in METHODS if getattr(trainer, name, None) is None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
