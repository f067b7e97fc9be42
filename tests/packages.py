"""Packages as `pip install` leaves them, for what comes in by entry points."""

from __future__ import annotations

from pathlib import Path


def installed(site: Path, name: str, group: str, points: str) -> None:
    """Writes what a package says of itself; its modules lie beside.

    Args:
        site: the folder of installed packages.
        group: of the entry points.
        points: the entry points, one a line.
    """
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
