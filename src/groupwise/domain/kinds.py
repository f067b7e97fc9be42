"""The place of an experiment where a domain stands: whatever kind an installed package brings, the shipped ones among
them.
"""

from __future__ import annotations

from typing import Annotated

from groupwise.config import OpenKinds
from groupwise.domain.own import config_of
from groupwise.domain.settings import DomainConfig

DOMAINS = OpenKinds("groupwise.domains", config_of)
"""The entry points: `kind = "package.module:Class"`, a `groupwise.Domain` or a `DomainConfig`."""

AnyDomainConfig = Annotated[DomainConfig, DOMAINS]
"""The configuration of any domain, told apart by `kind`."""
