"""The argument `domain` of `groupwise.train`: an object, a class, or the name of a kind."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel

from groupwise.config import ConfigError, object_path
from groupwise.experiment.object_record import import_path_of, record_of
from groupwise.experiment.python_objects import DOMAIN_INSTANCE, Arguments, type_name


def read_domain(arguments: Arguments, domain: Any) -> None:
    """Checks the argument, and writes the keys that it sets.

    Args:
        arguments: the record to which the object and the keys are added.
        domain: the value of the argument; None where it was left out.

    Raises:
        ConfigError: the value is no domain, or a member of the domain is missing.
    """
    from groupwise.domain.base import Domain
    from groupwise.domain.settings import DomainConfig

    if domain is None:
        return
    if isinstance(domain, str):
        arguments.domain = {"kind": domain}
        return
    if isinstance(domain, DomainConfig):
        arguments.domain = domain.model_dump(mode="json")
        return
    if inspect.isclass(domain) and issubclass(domain, Domain):
        arguments.domain = {"kind": "callable", "path": str(arguments.refer("domain", domain, "domain"))}
        return
    if not isinstance(domain, Domain):
        raise ConfigError(
            f"domain: an object of type {type_name(domain)} was given; allowed: an object or a class of"
            ' groupwise.Domain, or the name of a kind; write class Mine(groupwise.Domain), or domain="language"'
        )
    settings = _settings_of(domain)
    path = import_path_of(type(domain))
    arguments.objects[DOMAIN_INSTANCE] = domain
    # A resume compares this hash with that of a new domain of the class, to tell whether the class alone suffices.
    initial_weights = domain.checked().learner.fingerprint()
    arguments.records[DOMAIN_INSTANCE] = record_of(domain, "domain").model_copy(update={"hash": initial_weights})
    if path is None or settings is None:
        arguments.records["domain"] = record_of(domain, "domain")
        arguments.objects["domain"] = _class_of(domain)
        arguments.domain = {"kind": "callable", "path": str(object_path("domain"))}
    elif isinstance(settings, DomainConfig):
        arguments.domain = settings.model_dump(mode="json")
    else:
        arguments.domain = {"kind": "callable", "path": path, "settings": settings.model_dump(mode="json")}


def _settings_of(domain: Any) -> BaseModel | None:
    """Returns the settings that a domain keeps as an attribute; None where its class has settings and it keeps none."""
    from groupwise.domain.settings import DomainConfig

    values = list(vars(domain).values())
    for value in values:
        if isinstance(value, DomainConfig):
            return value
    settings_class = type(domain).Settings
    for value in values:
        if isinstance(value, settings_class):
            return value
    return settings_class() if not settings_class.model_fields else None


def _class_of(domain: Any) -> type[Any]:
    """Returns a class whose `open` returns this domain, for the key that names a domain's class."""
    from groupwise.domain.base import NoSettings

    def opened(cls: type[Any], settings: Any, **placement: Any) -> Any:
        return domain.checked()

    return type(type(domain).__name__, (type(domain),), {"Settings": NoSettings, "open": classmethod(opened)})
