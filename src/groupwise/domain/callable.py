"""The kinds of domains that an experiment can name: every kind that an installed package brings, the shipped ones among
them, and a user's domain class by its import path.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import create_model

from groupwise.config import (
    Config,
    ConfigError,
    FromPath,
    ImportPath,
    OpenKinds,
    Problem,
    check_class,
    is_object,
    user_class,
    why_failed,
)
from groupwise.domain.exported import Card, Export
from groupwise.domain.settings import DomainConfig
from groupwise.plugins import is_shipped

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.streams import Streams

_RESERVED = ("kind", "weights")


class UserDomainConfig(DomainConfig):
    """The configuration of a user's domain class: the parts that both ways share."""

    weights: str | None = None
    """A folder that the domain's `save` wrote; unset starts with the weights that the constructor makes."""

    @classmethod
    def on_model(cls, folder: str) -> dict[str, Any]:
        return {"weights": folder}

    def _parts(self) -> tuple[type[Domain], Config]:
        raise NotImplementedError

    def open(self, *, streams: Streams, device: str = "cpu") -> Domain:
        from pathlib import Path

        from groupwise.domain.returned import naming_failed_method

        domain_class, settings = self._parts()
        try:
            domain = domain_class.open(settings, streams=streams, device=device)
        except ConfigError:
            raise
        # A user's constructor may fail in any way.
        except Exception as error:
            raise ConfigError(f"domain: {domain_class.__name__}(settings) failed: {why_failed(error)}") from error
        if self.weights is not None:
            with naming_failed_method(domain):
                domain.load(Path(self.weights))
        return domain

    def adapt(self, domain: Domain) -> Domain:
        return domain.adapted(self._parts()[1])


@final
class CallableDomain(FromPath, UserDomainConfig):
    """A user's domain: the class at `path`, a `groupwise.Domain`, with the settings that its `Settings` validates.

    Raises:
        ConfigError: there is no such class, it is not a domain, members of it are missing, or it does not take the
            settings.
    """

    whole_run: ClassVar[frozenset[str]] = frozenset({"path", "weights"})

    @classmethod
    def settings_class(cls, path: ImportPath) -> type[Config]:
        """Returns the `Settings` of the domain class at a path."""
        return _settings_of(user_class(path), f"path = {str(path)!r}")

    def _parts(self) -> tuple[type[Domain], Config]:
        # The code of a run folder is first imported here, where no table names the key.
        return user_class(self.path, key="domain.path"), self.validated_settings

    @classmethod
    def card(cls, request: Export) -> Card:
        """Describes a copied model on its card. If the domain class was an object of a program, the card says to hand
        it over again.
        """
        card = super().card(request)
        if not is_object(ImportPath(str(request.settings.get("path")))):
            return card
        loading = f"groupwise.load_run({str(request.run)!r}).domain(domain=...)"
        remark = (
            "the run's domain is a Python object that no file describes: no command opens the folder; hand the class"
            " or the object over again, as the line below says"
        )
        return replace(card, loading=loading, remarks=(*card.remarks, remark))


class _Installed(UserDomainConfig):
    """A kind that a package brings: the keys of its class's settings are in `[domain]` itself."""

    domain_class: ClassVar[type[Any]]

    def _parts(self) -> tuple[type[Domain], Config]:
        return self.domain_class, self


def is_users(config: DomainConfig) -> bool:
    """Returns whether a domain comes from outside this package: a class by its path, or a kind of another package.

    Example:
        >>> from groupwise import load_experiment
        >>> is_users(load_experiment("language").domain)
        False
    """
    return isinstance(config, UserDomainConfig) or not is_shipped(type(config).__module__)


def config_of(kind: str, loaded: Any) -> type[DomainConfig]:
    """Builds the configuration class of a kind from the object of its entry point.

    Args:
        kind: the entry point's name.
        loaded: a `groupwise.Domain`, or a subclass of `DomainConfig` that opens one.

    Raises:
        ValueError: it is neither, or members are missing.
    """
    if inspect.isclass(loaded) and issubclass(loaded, DomainConfig):
        return loaded
    place = f"kind = {kind!r}"
    settings = _settings_of(loaded, place)
    if taken := [name for name in _RESERVED if name in settings.model_fields]:
        message = f"{loaded.__name__}.Settings has a key {taken[0]!r}, which every domain has; call it otherwise"
        raise ConfigError(Problem(place, message))
    base: Any = (settings, _Installed)
    field: Any = (Literal[kind], kind)  # pyright: ignore[reportInvalidTypeForm]
    config: Any = create_model(f"{loaded.__name__}Config", __base__=base, __doc__=loaded.__doc__, kind=field)
    config.whole_run, config.domain_class = frozenset({"weights"}), loaded
    return config


def _settings_of(loaded: Any, place: str) -> type[Config]:
    from groupwise.domain.base import Domain

    settings = check_class(loaded, Domain, place, name="groupwise.Domain").Settings
    if not (inspect.isclass(settings) and issubclass(settings, Config)):
        message = f"{loaded.__name__}.Settings is {settings!r}; write class Settings(groupwise.Config)"
        raise ConfigError(Problem(place, message))
    return settings


DOMAINS = OpenKinds("groupwise.domains", config_of)
"""The entry points: `kind = "package.module:Class"`, a `groupwise.Domain` or a `DomainConfig`."""


def config_class(kind: str) -> type[DomainConfig]:
    """Finds the configuration class of a run's domain; `DomainConfig` itself where its package is not installed here.

    Args:
        kind: as the run's `config.json` contains it.

    Raises:
        ValueError: the package is installed, and its code cannot be imported.

    Example:
        >>> config_class("a kind that nobody brings").__name__
        'DomainConfig'
    """
    config: Any = DOMAINS.config(kind) if kind in DOMAINS.names() else DomainConfig
    return config


AnyDomainConfig = Annotated[DomainConfig, DOMAINS]
"""The configuration of any domain, distinguished by `kind`."""
