"""A method as data: a published one with its paper, and one of a user's own, which changes another."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from pydantic import Field

from groupwise.config import Config, ConfigError, Problem, installed_names, load_installed, read_toml, validate

GROUP = "groupwise.methods"
"""The entry points by which an installed package brings methods: each names the path of a TOML file, or a table."""


@final
class Paper(Config):
    """The paper that published a method."""

    title: str
    authors: str
    year: int
    arxiv: str | None = None
    note: str | None = None

    def bibtex(self, key: str) -> str:
        """Returns a BibTeX entry."""
        fields = {"title": self.title, "author": self.authors, "year": str(self.year)}
        if self.arxiv:
            fields |= {"eprint": self.arxiv, "archivePrefix": "arXiv"}
        if self.note:
            fields["note"] = self.note
        body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        return f"@misc{{{key},\n{body}\n}}"


@final
class Method(Config):
    """A published method, or a correction that is laid on one: its paper, its equation, its slots, and how it deviates
    from the paper.
    """

    title: str
    summary: str
    question: str = ""
    """The need under which lists show it; empty for methods that no paper published."""
    equation: str
    """LaTeX of the function that is maximised."""
    when: str
    """Advice on the cases in which to use the method."""
    failure: str
    """The known ways in which the method fails."""
    deviations: list[str] = Field(default_factory=list)
    paper: Paper
    objective: dict[str, Any]


@final
class MethodFile(Config):
    """A user's method: the slots that it changes in another method. Only `objective` must be written."""

    extends: str = "grpo"
    """The method that it changes: a published one with overlays joined by `+`, or another file in its folder."""
    title: str = ""
    summary: str = ""
    equation: str = ""
    """LaTeX of the function that is maximised."""
    when: str = ""
    failure: str = ""
    deviations: list[str] = Field(default_factory=list)
    paper: Paper | None = None
    objective: dict[str, Any]

    @classmethod
    def instead_of_unknown(cls, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Names the place of a slot at the top of an experiment, which has no table for slots."""
        is_slot = isinstance(table.get(key), Mapping) and not difflib.get_close_matches(key, cls.model_fields)
        return f"a slot stands below objective; write objective.{key}" if is_slot else ""


def installed_methods() -> tuple[str, ...]:
    """Returns the names of the methods that installed packages bring."""
    return installed_names(GROUP)


def is_own(name: str) -> bool:
    """Returns whether a method is a file, or one that an installed package brings.

    Args:
        name: the method's name, without overlays.

    Example:
        >>> is_own("mine.toml"), is_own("grpo")
        (True, False)
    """
    return name.endswith(".toml") or name in installed_methods()


def read_own(name: str, folder: Path = Path()) -> tuple[MethodFile, Path]:
    """Reads a method that is a file, or that an installed package brings.

    Args:
        name: the path of a `.toml` file, or the name of an entry point of `groupwise.methods`.
        folder: the folder to which a relative path refers.

    Returns:
        the method, and the path of its file; where an entry point gives a table, the path names the entry point.

    Raises:
        ConfigError: there is no such file, the file has an unknown key, or the entry point fails or is brought by two
            packages.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "mine.toml"
        >>> _ = path.write_text('extends = "dapo"\\nobjective.trust.high = 0.4\\n')
        >>> read_own(str(path))[0].objective
        {'trust': {'high': 0.4}}
    """
    content, path = (folder / name, folder / name) if name.endswith(".toml") else _installed(name)
    if isinstance(content, Mapping):
        return validate(MethodFile, dict(content), source=str(path)), path
    if not content.is_file():
        raise ConfigError(
            Problem(f"method = {name!r}", f"there is no file {content}; write the path of a method's .toml file")
        )
    return validate(MethodFile, read_toml(content), source=str(content)), content.resolve()


def _installed(name: str) -> tuple[Mapping[str, Any] | Path, Path]:
    brought = load_installed(name, GROUP, "method")
    content = brought.value
    if isinstance(content, str | Path):
        return Path(content), Path(content)
    if isinstance(content, Mapping):
        return content, Path(brought.path)
    kind = type(content).__name__
    message = f"{brought.path} of package {brought.package} is a {kind}; it must be a path or a table"
    raise ConfigError(Problem(f"method = {name!r}", message))
