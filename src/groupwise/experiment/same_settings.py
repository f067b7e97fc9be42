"""The comparison of an experiment with the run that a folder holds already."""

from __future__ import annotations

from pathlib import Path

from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.object_check import MOST_SHOWN, more
from groupwise.experiment.schema import Experiment
from groupwise.runs.folder import RunFolder


def check_same_settings(experiment: Experiment, folder: Path) -> None:
    """Refuses to go on with a run under other settings than it began with. Python objects are not compared here.

    Args:
        experiment: the experiment as it would begin now.
        folder: a run folder with its `config.json`.

    Raises:
        ConfigError: a key differs; the message gives both values.

    Example:
        >>> import json, tempfile
        >>> from groupwise.experiment.loading import load_experiment
        >>> experiment = load_experiment("language")
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "config.json").write_text(json.dumps({**experiment.table(), "seed": 3}))
        >>> check_same_settings(experiment, folder)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder ...: its run began with other settings: seed = 0 (3 there); ...
    """
    recorded = read_json(RunFolder(folder).config)
    changed = difference({**recorded, "objects": None}, {**experiment.table(), "objects": None})
    if changed:
        differences = [
            f"{key} = {value!r} ({recorded_value!r} there)"[:200] for key, (recorded_value, value) in changed.items()
        ]
        raise ConfigError(
            f"run folder {folder}: its run began with other settings:"
            f" {', '.join(differences[:MOST_SHOWN])}{more(differences)}; give the same again, or another folder for"
            " another run"
        )
