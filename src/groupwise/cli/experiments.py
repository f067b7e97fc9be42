"""`groupwise experiments`: what can be trained by name."""

from __future__ import annotations


def experiments() -> None:
    """List the experiments that come with Groupwise."""
    from groupwise.cli.output import console, table, within
    from groupwise.experiment.catalogue import find, shipped

    rows = [(name, find(name).description) for name in shipped()]
    console().print(table(["experiment", "what it is"], rows))
    if not rows:
        console().print("None is shipped.")
        return
    console().print("Run one:     groupwise train NAME")
    console().print(
        'Change one:  a .toml file of yours that begins with extends = "NAME", and groupwise train FILE.toml',
        markup=False,
    )
    console().print(f"Read one:    {within(find(rows[0][0]).path.parent)}", markup=False)
