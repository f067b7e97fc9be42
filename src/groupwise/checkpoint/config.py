"""The configuration of checkpoints: how often a run is saved, and which checkpoints stay."""

from typing import final

from groupwise.config import Config
from groupwise.config.errors import Positive


@final
class CheckpointConfig(Config):
    """The rule for saving and removing checkpoints.

    Args:
        every: steps between checkpoints; the last step, the end of a stage and Ctrl-C always save one.
        keep_last: the newest so many stay.
        keep_best: the one with the best score of an evaluation stays too, and its model as the folder `best/`.
        keep_every: every step divisible by this stays as well; unset keeps none for that reason.
        model_every: a loadable model folder `models/step-N` every so many steps, and where a stage ends; unset writes
            only the last one.

    Example:
        >>> CheckpointConfig().keep_last
        2
    """

    every: Positive = 50
    keep_last: Positive = 2
    keep_best: bool = True
    keep_every: Positive | None = None
    model_every: Positive | None = None
