"""Rewards of selected examples: what a prefix of them does to a task model's answers, and what an example costs."""

from groupwise_selection.reward.adaptive_weights import ShotCost
from groupwise_selection.reward.vqa import Vqa, vqa_accuracy

__all__ = ["ShotCost", "Vqa", "vqa_accuracy"]
