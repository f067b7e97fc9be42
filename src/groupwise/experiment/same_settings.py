"""The comparison of an experiment with the run that a folder holds already."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.code_consent import code_of, needs_consent, remember
from groupwise.experiment.loading import read_experiment
from groupwise.experiment.object_record import MOST_SHOWN, more
from groupwise.experiment.schema import Experiment
from groupwise.runs.folder import RunFolder

OF_MEMORY: Final = (
    "train.micro_batch_members",
    "train.gradient_checkpointing",
    "domain.engine.max_members",
    "domain.transitions_at_once",
)
"""The keys that say how a step is computed and not what: they change its results by rounding alone. A run whose memory
ran out goes on with others.
"""

_OF_A_PART: Final = re.compile(r"^(stages\[\d+\]|controls\..+?)\.set\.")
"""The beginning of a key that a stage or a control has for itself."""


def check_same_settings(experiment: Experiment, folder: Path, *, patience_seconds: float = 10.0) -> list[str]:
    """Refuses to go on with a run under other settings than it began with, but for those of `OF_MEMORY` (a stage's and
    a control's too), which `config.json` then says. Python objects are not compared here. Each of several processes
    calls it.

    Args:
        experiment: the experiment as it would begin now.
        folder: a run folder with its `config.json`.
        patience_seconds: the longest wait for a process that trains in the folder, before `config.json` is written.

    Returns:
        a sentence about each key that differs from now on.

    Raises:
        ConfigError: a key differs, and the message gives both values; or another process trains in the folder.

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
    from groupwise.training.run.run_folder import accept_configuration, locked, write_json

    run = RunFolder(folder)
    # What a version before this one had no key for has the value of today, as `resume` takes it.
    recorded = read_experiment(run.config, allowed=[reference.path for reference in code_of(experiment)]).table()
    wanted = {**experiment.table(), **{key: value for key, value in recorded.items() if key == "objects"}}
    changed = difference({**recorded, "objects": None}, {**wanted, "objects": None})
    if others := [key for key in changed if _OF_A_PART.sub("", key) not in OF_MEMORY]:
        differences = [f"{key} = {changed[key][1]!r} ({changed[key][0]!r} there)"[:200] for key in others]
        raise ConfigError(
            f"run folder {folder}: its run began with other settings:"
            f" {', '.join(differences[:MOST_SHOWN])}{more(differences)}; give the same again (only"
            f" {', '.join(OF_MEMORY)} may differ), or another folder for another run"
        )
    if changed and not run.summary.is_file():
        if needs_consent(experiment):
            remember(run.config, [wanted])
        # A process that trains holds a lock on the file, which a new one would be without. Whichever of the processes
        # of this run comes first writes it, so that none reads the old one.
        with locked(run, patience_seconds):
            if read_json(run.config) != wanted:
                write_json(run.config, wanted)
                accept_configuration(run)
    return [f"goes on with {key} = {new!r}, where it had {old!r}" for key, (old, new) in changed.items()]
