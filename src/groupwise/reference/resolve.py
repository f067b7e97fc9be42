"""The reference of a stage: its default, and the combinations that are refused."""

from __future__ import annotations

from typing import Any

from groupwise.config import ConfigError
from groupwise.reference.absent import AbsentReference
from groupwise.reference.frozen import FrozenReference


def resolve_reference(config: Any | None, *, required: bool) -> Any:
    """Returns the reference of a stage.

    Args:
        config: the configured reference, or `None` where the user wrote none.
        required: whether the objective compares with a reference (a divergence whose beta may be positive).

    Returns:
        The configured reference; where none is configured, `frozen` where it is required and `absent` where it is not.

    Raises:
        ConfigError: a reference is required and absent, or configured and without use.

    Example:
        >>> resolve_reference(None, required=True).kind, resolve_reference(None, required=False).kind
        ('frozen', 'absent')
    """
    if config is None:
        return FrozenReference() if required else AbsentReference()
    absent = not config.present
    if required and absent:
        raise ConfigError(
            'reference.kind = "absent": the divergence compares with a reference; write reference.kind = "frozen", or'
            " divergence.beta = 0"
        )
    if not required and not absent:
        raise ConfigError(
            f'reference.kind = "{config.kind}": no term of the objective uses a reference; set divergence.beta above 0'
            " or remove [reference]"
        )
    return config
