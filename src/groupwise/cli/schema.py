"""`groupwise schema`: the JSON schema of an experiment, for editors."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.output import console


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
