"""The configuration of the trackers that follow a run besides `metrics.jsonl`, which is always written."""

from typing import Literal, final

from groupwise.config import Config
from groupwise.config.errors import Count, Positive


@final
class WandbConfig(Config):
    """Weights & Biases; needs the extra `track`.

    Args:
        project: the name of the project at Weights & Biases.
        mode: `offline` writes a local folder that `wandb sync` sends later.

    Example:
        >>> WandbConfig().mode
        'offline'
    """

    project: str = "groupwise"
    mode: Literal["online", "offline"] = "offline"


@final
class TrackConfig(Config):
    """The trackers that follow a run.

    Args:
        console: `auto` shows live progress on a terminal and one line a step elsewhere; `lines` and `none` say so.
        tensorboard: writes TensorBoard files to `RUN/tensorboard`; needs the extra `track`.
        wandb: where to send metrics; unset sends nothing.
        rollouts_every: steps between two files in `RUN/rollouts`, the first and the last of a stage included; 0 writes
            none.
        num_rollouts: members written per file, whole groups first to last.
        curves: draws the mean reward, the mean advantage and the loss over the steps into `RUN/curves.png` at the end;
            needs the extra `report`.
        keep_records: of rollouts, and of evaluations, the newest so many files stay with their pictures; of older ones
            at most as many, evenly over the run, with the first. So a run of any length has a folder of bounded size.
            Unset keeps all.

    Example:
        >>> TrackConfig().tensorboard
        False
    """

    console: Literal["auto", "lines", "none"] = "auto"
    tensorboard: bool = False
    wandb: WandbConfig | None = None
    rollouts_every: Count = 10
    num_rollouts: Count = 64
    curves: bool = False
    keep_records: Positive | None = 128
