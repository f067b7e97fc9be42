"""The trackers that follow a run: metrics.jsonl, console, TensorBoard, Weights & Biases."""

from groupwise.track.config import TrackConfig, WandbConfig
from groupwise.track.metrics import MetricsFile, depends_on_machine, read_metrics
from groupwise.track.open import open_trackers
from groupwise.track.tracker import Tracker, Trackers

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
