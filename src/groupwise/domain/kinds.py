"""The kinds of domains that an experiment can name: every kind that an installed package brings, the shipped ones among
them.
"""

from __future__ import annotations

from typing import Annotated, Any

from groupwise.config import OpenKinds
from groupwise.domain.callable import config_of
from groupwise.domain.settings import DomainConfig

DOMAINS = OpenKinds("groupwise.domains", config_of)
"""The entry points: `kind = "package.module:Class"`, a `groupwise.Domain` or a `DomainConfig`."""


def config_class(kind: str) -> type[DomainConfig]:
    """Finds the configuration class of a run's domain; `DomainConfig` itself where its package is not installed here.

    Args:
        kind: as the run's `config.json` says it.

    Raises:
        ValueError: the package is installed, and its code cannot be imported.

    Example:
        >>> config_class("a kind that nobody brings").__name__
        'DomainConfig'
    """
    config: Any = DOMAINS.config(kind) if kind in DOMAINS.names() else DomainConfig
    return config


AnyDomainConfig = Annotated[DomainConfig, DOMAINS]
"""The configuration of any domain, told apart by `kind`."""
