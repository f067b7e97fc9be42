"""Experiments that tests of several pages read: each is loaded once."""

from __future__ import annotations

from functools import cache

from groupwise.experiment import Experiment, load_experiment


@cache
def loaded_once(name: str, changes: tuple[str, ...] = ()) -> Experiment:
    """An experiment with changes as the command takes them; nobody changes what is returned."""
    return load_experiment(name, list(changes))
