"""The objects of a program in a run: what the run holds, and the keys that refer to them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.config import ImportPath, object_path
from groupwise.domain.objects import DomainObjects, RowsObject
from groupwise.experiment.object_record import ObjectRecord, import_path_of, record_of

DOMAIN_INSTANCE, MODULE = "domain_instance", "module"
"""Names of a domain that is built already, and of a module for a domain."""


@final
@dataclass
class Arguments:
    """Objects of a program, and the keys that refer to them.

    Args:
        objects: name -> object, for `groupwise.config.holding`.
        records: name -> what `config.json` says of an object that no import path names.
        model: what the domain's model is: a folder, or the import paths of a model and its tokenizer.
        domain: keys of the domain's table that its instance, class or kind gives.
        objective: keys of the experiment that say the method.
        rewards, data, eval_data: as the domain takes them.
        callbacks: import paths; None where there was no such argument.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    model: str | tuple[ImportPath, ImportPath] | None = None
    domain: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, dict[str, Any]] | None = None
    data: RowsObject | str | None = None
    eval_data: RowsObject | str | None = None
    callbacks: list[str] | None = None

    @property
    def for_domain(self) -> DomainObjects:
        """The objects that the domain's configuration takes."""
        return DomainObjects(self.model, self.rewards, self.data, self.eval_data)

    def refer(self, name: str, value: Any, argument: str) -> ImportPath:
        """Returns the import path of an object: its own where another process finds it, otherwise that of an object
        which the run holds.

        Args:
            name: of the object in the run.
            value: the object.
            argument: what `groupwise.train` got it as.
        """
        path = import_path_of(value)
        if path is not None:
            return ImportPath(path)
        return self.hold(name, value, argument)

    def hold(self, name: str, value: Any, argument: str) -> ImportPath:
        """Returns the import path of an object that the run holds.

        Args:
            name: of the object in the run.
            value: the object.
            argument: what `groupwise.train` got it as.
        """
        self.objects[name] = value
        self.records[name] = record_of(value, argument)
        return object_path(name)


def type_name(value: Any) -> str:
    """Returns the name of a value's type, or of a class itself, with its module.

    Args:
        value: any.

    Example:
        >>> type_name(3), type_name(ImportPath)
        ('int', 'groupwise.config.import_path.ImportPath')
    """
    kind = value if inspect.isclass(value) else type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
