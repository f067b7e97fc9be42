"""The trackers that follow a run: metrics.jsonl, console, TensorBoard, Weights & Biases."""

# ruff: noqa: F401
from groupwise.track.config import TrackConfig, WandbConfig
from groupwise.track.silence import Silence
from groupwise.track.tracker import MetricsFile, Tracker, Trackers, depends_on_machine, read_metrics
from groupwise.track.wandb import open_trackers
