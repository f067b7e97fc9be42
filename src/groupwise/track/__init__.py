"""The trackers that follow a run: metrics.jsonl, console, TensorBoard, Weights & Biases."""

from groupwise.track.config import TrackConfig, WandbConfig
from groupwise.track.tracker import MetricsFile, Tracker, Trackers, depends_on_machine, read_metrics
from groupwise.track.wandb import open_trackers

__all__ = [
    "MetricsFile",
    "TrackConfig",
    "Tracker",
    "Trackers",
    "WandbConfig",
    "depends_on_machine",
    "open_trackers",
    "read_metrics",
]
