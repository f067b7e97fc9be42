"""The pages of the command line, from the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from page_text import one_line, table

EXIT = """
## Exit status

| status | meaning |
|---|---|
| 0 | done; for `doctor`: nothing is wrong |
| 1 | a defect of Groupwise, which prints a traceback |
| 2 | bad input: one line says what is wrong and what to write |
| 3 | `doctor` alone: a fault or a warning held at the end of a stage |
| 130, 143 | ended by Ctrl-C or by SIGTERM, after a checkpoint |
"""


def command_pages() -> Iterator[tuple[str, str]]:
    """Yields the page of the command and a page for each verb with its arguments and options."""
    from typer.main import get_command

    from groupwise.cli.app import app

    group: Any = get_command(app)
    verbs = [verb for verb in group.commands.values() if not verb.hidden]
    rows = [
        (f"[`{verb.name}`](command_line/{verb.name}.md)", one_line(verb.get_short_help_str(limit=200)))
        for verb in verbs
    ]
    parts = ["# Command line", "`groupwise VERB --help` prints the same.", table(("verb", "in one line"), rows)]
    yield "reference/command_line.md", "\n\n".join([*parts, EXIT.strip()])
    for verb in verbs:
        yield f"reference/command_line/{verb.name}.md", "\n\n".join(_verb(verb))


def _verb(verb: Any) -> Iterator[str]:
    yield f"# groupwise {verb.name}"
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in verb.params if parameter.param_type_name == "option" and not parameter.hidden]
    usage = " ".join(["groupwise", verb.name, *(_metavar(parameter) for parameter in arguments), "[OPTIONS]"])
    yield f"```text\n{usage}\n```"
    yield (verb.help or "").replace("\b", "").strip()
    rows = [(f"`{_metavar(parameter)}`", parameter.help or "") for parameter in arguments]
    rows += [
        (", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)), parameter.help or "")
        for parameter in options
        if parameter.name != "help"
    ]
    if rows:
        yield table(("argument", "meaning"), rows)


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required or name.startswith("[") else f"[{name}]"
