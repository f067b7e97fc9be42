"""`groupwise experiments` and `groupwise schema`: what can be trained by name, and what may stand in a file."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.output import console, table, within
from groupwise.experiment.catalogue import find, shipped


def experiments(
    all_: Annotated[
        bool, typer.Option("--all", help="The settings of the five source projects, `source_*`, as well.")
    ] = False,
) -> None:
    """List the experiments that come with Groupwise."""

    names = [name for name in shipped() if all_ or not name.startswith("source_")]
    rows = [(name, find(name).description) for name in names]
    console().print(table(["experiment", "what it is"], rows))
    if not rows:
        console().print("None is shipped.")
        return
    if len(names) < len(shipped()):
        console().print(
            f"{len(shipped()) - len(names)} more, the settings of five source projects: groupwise experiments --all"
        )
    console().print("Run one:     groupwise train NAME")
    console().print(
        'Change one:  a .toml file of yours that begins with extends = "NAME", and groupwise train FILE.toml',
        markup=False,
    )
    folders = dict.fromkeys(str(within(find(name).path.parent)) for name in names)
    console().print(f"Read one:    in {', '.join(folders)}", markup=False)


def schema(out: Annotated[Path | None, typer.Option(help="File to write; printed when left out.")] = None) -> None:
    """Write the JSON schema of experiment files, so that an editor completes and checks them.

    In a TOML file, name it in the first line: `#:schema ./experiment.schema.json`.
    """
    import json

    from groupwise.checkpoint import write_file
    from groupwise.experiment.schema import file_schema

    text = json.dumps(file_schema(), indent=2)
    if out is None:
        print(text)
        return
    write_file(out, text + "\n")
    console().print(f"Wrote {out}. Put this line first in an experiment file beside it: #:schema ./{out.name}")
