"""The plugin of verl (entry point `verl.plugins`): where this package is installed, `import verl` registers every
published method as `groupwise_<name>`, in every process and without a module of the user's.

Edited methods come from the environment variable `GROUPWISE_VERL`, several divided by `;`:

    GROUPWISE_VERL="gspo trust.high=0.0005; dapo trust.high=0.3"

`python -m groupwise.integrations.verl gspo trust.high=0.0005` prints that variable and the overrides to write.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = "GROUPWISE_VERL"

log = logging.getLogger("groupwise")


def edited_methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Reads methods and their edits, `"gspo trust.high=0.0005; dapo"`.

    Raises:
        ConfigError: an item that is no `key=value`.

    Example:
        >>> edited_methods("gspo trust.high=0.0005; dapo")
        [('gspo', {'trust.high': 0.0005}), ('dapo', {})]
    """
    from groupwise.config import ConfigError
    from groupwise.config.layers import parse_value

    methods = []
    for line in filter(None, (part.strip() for part in text.split(";"))):
        name, *items = line.split()
        if broken := [item for item in items if "=" not in item]:
            raise ConfigError(f"{VARIABLE}: {broken[0]!r} is no key=value; write {VARIABLE}='gspo trust.high=0.0005'")
        methods.append((name, {key: parse_value(value) for key, _, value in (item.partition("=") for item in items)}))
    return methods


def register_all(environment: Mapping[str, str]) -> list[str]:
    """Registers every published method, and those of the environment variable, with verl.

    A method is built at its first call, so that `import verl` stays fast. A published one that verl cannot carry is
    registered too, and its first call raises the reason.

    Returns:
        the names in verl.
    """
    from groupwise.integrations.verl.register import algorithms, register
    from groupwise.objective.preset import method_names

    core = algorithms()
    names = []
    for method in method_names():
        name = f"groupwise_{method}"
        core.register_policy_loss(name)(_built_at_first_call(method, "policy_loss"))
        core.ADV_ESTIMATOR_REGISTRY.pop(name, None)
        core.register_adv_est(name)(_built_at_first_call(method, "advantage_estimator"))
        names.append(name)
    for method, edits in edited_methods(environment.get(VARIABLE, "")):
        lines = register(method, edits)
        names.append(lines[0].partition("=")[2])
    return names


def _built_at_first_call(method: str, part: str) -> Callable[..., Any]:
    built: list[Callable[..., Any]] = []

    def call(*arguments: Any, **settings: Any) -> Any:
        if not built:
            from groupwise.integrations import verl
            from groupwise.objective import Objective

            built.append(getattr(verl, part)(Objective.preset(method)))
        return built[0](*arguments, **settings)

    return call


def load() -> None:
    """Registers where verl is imported. verl hides the errors of plugins, so one is logged here."""
    try:
        register_all(os.environ)
    except Exception as error:
        log.error("the methods of groupwise are not registered with verl: %s", error)
        raise
