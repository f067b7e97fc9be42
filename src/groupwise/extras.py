"""The extras of this package, and the advice on which of them installs a missing package."""

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

from groupwise.config import ConfigError, Problem

_IMPORTED_AS = {
    "pillow": "PIL",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}
"""Name under which a package is installed -> name under which it is imported, where the two differ."""

_LINE = re.compile(r"([A-Za-z0-9_.-]+).*;.*extra\s*==\s*['\"]([a-z]+)['\"]")
_EXTRAS = ("report", "language", "diffusion", "restoration", "selection", "smollm")
"""The extras in the order in which advice names them: `report` first, since a domain that lacks its own extra is
refused before anything is loaded.
"""


@lru_cache(maxsize=1)
def _modules() -> dict[str, tuple[str, ...]]:
    """Returns the modules that each extra brings, by the extra's name, as the installed package states them."""
    try:
        lines = requires("groupwise") or []
    except PackageNotFoundError:
        lines = []
    modules: dict[str, list[str]] = {}
    for requirement in lines:
        if match := _LINE.fullmatch(requirement.strip()):
            name, extra = match.groups()
            modules.setdefault(extra, []).append(_IMPORTED_AS.get(name, name.replace("-", "_")))
    return {extra: tuple(names) for extra, names in modules.items()}


def missing(extra: str) -> tuple[str, ...]:
    """Lists the modules of an extra that cannot be imported here.

    Args:
        extra: name of the extra, for example "language".

    Example:
        >>> missing("language")
        ()
    """
    return tuple(name for name in _modules().get(extra, ()) if find_spec(name) is None)


def advice(module: str) -> str | None:
    """Reports in one line which extra brings a module that is missing.

    Args:
        module: name of the missing module, as it is imported.

    Returns:
        the advice; `None` where no extra of this package brings the module.

    Example:
        >>> advice("scipy")
        "scipy is not installed; the extras report and restoration bring it: pip install '.[report]'"
        >>> advice("colorsys") is None
        True
    """
    extras = [extra for extra in _EXTRAS if module in _modules().get(extra, ())]
    if not extras:
        return None
    *front, last = extras
    extras_text = f"the extras {', '.join(front)} and {last} bring it" if front else f"the extra {last} brings it"
    return f"{module} is not installed; {extras_text}: {install(extras[0])}"


def install(extra: str) -> str:
    """Returns the command that installs an extra, in the folder of this project."""
    return f"pip install '.[{extra}]'"


def require(extra: str, subject: str) -> None:
    """Refuses a setting or a verb whose extra is not installed.

    Args:
        extra: name of the extra.
        subject: the setting or the verb, as the user wrote it.

    Raises:
        ConfigError: packages of the extra are missing; the message names them and the command that installs them.

    Example:
        >>> require("language", "domain.kind = 'language'")
    """
    if modules := missing(extra):
        raise ConfigError(
            Problem(
                subject,
                f"needs the extra {extra}; not installed are {', '.join(modules)}; write {install(extra)}",
            )
        )


def torchvision_command() -> str:
    """Returns the command that installs a torchvision which fits the torch that is here. The package index has it for
    CUDA alone, and beside that one and a torch without CUDA nothing of transformers can be imported.

    Example:
        >>> torchvision_command().startswith("python -m pip install")
        True
    """
    import torch

    without_cuda = torch.version.cuda is None and torch.version.hip is None
    index = " --index-url https://download.pytorch.org/whl/cpu" if without_cuda else ""
    return f"python -m pip install --force-reinstall --no-deps torchvision{index}"
