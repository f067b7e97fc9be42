"""`groupwise experiments`: what can be trained by name."""

from __future__ import annotations


def experiments() -> None:
    """List the experiments that come with Groupwise."""
    from groupwise.cli.output import console, table
    from groupwise.experiment.catalogue import find, shipped

    rows = [(name, find(name).description) for name in shipped()]
    console().print(table(["experiment", "what it is"], rows))
    console().print("Run one: groupwise train NAME. Copy and change one: " + str(find(rows[0][0]).path.parent) if rows else "None is shipped.")
