"""A user's domain as configuration: a class by import path, or a kind that an installed package brings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from pydantic import Field, ValidationInfo, create_model, field_validator

from groupwise.config import Config, ConfigError, ImportPath, InModule, may_run, raised_at, user_class, validate
from groupwise.domain.settings import DomainConfig

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

        domain_class, settings = self._parts()
        try:
            domain = domain_class.open(settings, streams=streams, device=device)
        except ConfigError:
            raise
        # A stranger's constructor may fail in any way.
        except Exception as error:
            raise ConfigError(
                f"domain: {domain_class.__name__}(settings) failed: {type(error).__name__}: {error}{raised_at(error)}"
            ) from error
        if self.weights is not None:
            domain.load(Path(self.weights))
        return domain

    def adapt(self, domain: Domain) -> Domain:
        return domain.adapted(self._parts()[1])


@final
class CallableDomain(UserDomainConfig):
    """A user's domain: the class at `path`, a `groupwise.Domain`, with the settings that its `Settings` validates.

    Args:
        path: `package.module:Class`; the module may lie in the working directory.
        settings: keys of the class's `Settings`.

    Raises:
        ConfigError: there is no such class, it is no domain, members of it are missing, or it does not take the
            settings.
    """

    whole_run: ClassVar[frozenset[str]] = frozenset({"path", "weights"})

    kind: Literal["callable"] = "callable"
    path: InModule
    settings: Mapping[str, Any] = Field(default_factory=dict, validate_default=True)

    @field_validator("path")
    @classmethod
    def _names_a_domain(cls, path: ImportPath) -> ImportPath:
        if may_run(path):
            try:
                _usable(user_class(path), repr(str(path)))
            except ValueError as error:
                raise ValueError(str(error).removeprefix("path = ")) from error
        return path

    @field_validator("settings")
    @classmethod
    def _complete(cls, settings: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        """States every key of the class's settings, so that a run's `config.json` says all that it was trained with."""
        path = info.data.get("path")
        if path is None or not may_run(path):
            return settings
        return _validated(user_class(path), settings).model_dump(mode="json")

    def _parts(self) -> tuple[type[Domain], Config]:
        domain_class = user_class(self.path)
        return domain_class, _validated(domain_class, self.settings)


class _Installed(UserDomainConfig):
    """A kind that a package brings: the keys of its class's settings stand in `[domain]` itself."""

    domain_class: ClassVar[type[Any]]

    def _parts(self) -> tuple[type[Domain], Config]:
        return self.domain_class, self


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
    domain_class = _usable(loaded, f"kind = {kind!r}")
    taken = [name for name in _RESERVED if name in domain_class.Settings.model_fields]
    if taken:
        raise ValueError(
            f"kind = {kind!r}: {domain_class.__name__}.Settings has a key {taken[0]!r}, which every domain has; call it"
            " otherwise"
        )
    base: Any = (domain_class.Settings, _Installed)
    field: Any = (Literal[kind], kind)  # pyright: ignore[reportInvalidTypeForm]
    config: Any = create_model(
        f"{domain_class.__name__}Config", __base__=base, __doc__=domain_class.__doc__, kind=field
    )
    config.whole_run, config.domain_class = frozenset({"weights"}), domain_class
    return config


def _usable(loaded: Any, place: str) -> type[Domain]:
    from groupwise.domain.base import Domain

    if not (inspect.isclass(loaded) and issubclass(loaded, Domain)):
        description = loaded.__name__ if inspect.isclass(loaded) else repr(loaded)
        raise ValueError(
            f"{place}: {description} is no domain; write class {getattr(loaded, '__name__', 'Mine')}(groupwise.Domain)"
        )
    missing = sorted(getattr(loaded, "__abstractmethods__", ()))
    if missing:
        raise ValueError(
            f"{place}: {loaded.__name__} lacks {', '.join(missing)}; see groupwise.Domain for what each of them is"
            " given and returns"
        )
    if not (inspect.isclass(loaded.Settings) and issubclass(loaded.Settings, Config)):
        raise ValueError(
            f"{place}: {loaded.__name__}.Settings is {loaded.Settings!r}; write class Settings(groupwise.Config)"
        )
    return loaded


def _validated(domain_class: type[Domain], settings: Mapping[str, Any]) -> Config:
    try:
        return validate(domain_class.Settings, settings)
    except ConfigError as error:
        raise ValueError("; ".join(f"domain.settings.{problem}" for problem in error.problems)) from None
