"""The objects of a program in a run, and the configuration keys that refer to them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.config import ImportPath, object_path
from groupwise.domain.objects import DomainObjects, EvaluationObjects, RowsObject
from groupwise.experiment.object_record import ObjectRecord, import_path_of, record_of

DOMAIN_INSTANCE, MODULE = "domain_instance", "module"
"""Names of a domain that is built already, and of a module for a domain."""


@final
@dataclass
class Arguments:
    """Objects of a program, and the keys that refer to them.

    Args:
        objects: name -> object, for `groupwise.config.holding`.
        records: name -> the record in `config.json` of an object that no import path names.
        model: the domain's model: a folder, or the import paths of a model and its tokenizer.
        domain: the keys of the domain's table that follow from its instance, class or kind.
        objective: the keys of the experiment that state the method.
        rewards, data, eval_data: the arguments in the form that the domain takes.
        callbacks, tools: import paths; None where the argument was left out.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    model: str | tuple[ImportPath, ImportPath] | None = None
    domain: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, dict[str, Any]] | None = None
    data: RowsObject | str | None = None
    eval_data: EvaluationObjects = None
    callbacks: list[str] | None = None
    tools: tuple[ImportPath, ...] | None = None

    @property
    def for_domain(self) -> DomainObjects:
        """The objects that the domain's configuration takes."""
        return DomainObjects(self.model, self.rewards, self.data, self.eval_data, self.tools)

    def refer(self, name: str, value: Any, argument: str) -> ImportPath:
        """Returns the import path of an object: its own where another process can import it, otherwise that of an
        object which the run holds.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        path = import_path_of(value)
        if path is not None:
            return ImportPath(path)
        return self.hold(name, value, argument)

    def hold(self, name: str, value: Any, argument: str) -> ImportPath:
        """Adds an object to those that the run holds, and returns its import path.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        self.objects[name] = value
        self.records[name] = record_of(value, argument)
        return object_path(name)


def type_name(value: Any) -> str:
    """Returns the name of a value's type, or of a class itself, with its module.

    Example:
        >>> type_name(3), type_name(ImportPath)
        ('int', 'groupwise.config.import_path.ImportPath')
    """
    kind = value if inspect.isclass(value) else type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
