"""Rewards: callables that score completions, and their combination. Importing this loads neither torch nor
transformers.
"""

from __future__ import annotations

from groupwise.reward.aesthetic import Aesthetic
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.callable import CallableReward
from groupwise.reward.classifier import Classifier
from groupwise.reward.clip_score import ClipScore
from groupwise.reward.coherence import Coherence
from groupwise.reward.config import RewardConfig
from groupwise.reward.error import RewardError
from groupwise.reward.exact_answer import ExactAnswer
from groupwise.reward.extract import Extract
from groupwise.reward.format import Format
from groupwise.reward.jpeg_size import JpegSize
from groupwise.reward.judge import Judge
from groupwise.reward.judged import as_judge, trained_on
from groupwise.reward.knights_and_knaves import KnightsAndKnaves
from groupwise.reward.length import Length
from groupwise.reward.math_verify import MathVerify
from groupwise.reward.noted import Noted
from groupwise.reward.numeric_answer import NumericAnswer
from groupwise.reward.pick_score import PickScore
from groupwise.reward.reasoning_gym import ReasoningGym
from groupwise.reward.repetition import Repetition
from groupwise.reward.reward_model import RewardModel
from groupwise.reward.score import Rewards, needed_by, score
from groupwise.reward.shot_cost import ShotCost
from groupwise.reward.soft_overlong import SoftOverlong
from groupwise.reward.table import RewardEvent, RewardTable
from groupwise.reward.unit_tests import UnitTests
from groupwise.reward.vqa import Vqa
from groupwise.reward.vqa_accuracy import expected_accuracy, vqa_accuracy
from groupwise.reward.win_rate import WinRate

__all__ = [
    "Aesthetic",
    "CallableReward",
    "Classifier",
    "ClipScore",
    "Coherence",
    "ExactAnswer",
    "Extract",
    "Format",
    "JpegSize",
    "Judge",
    "KnightsAndKnaves",
    "Length",
    "MathVerify",
    "Noted",
    "NumericAnswer",
    "PickScore",
    "ReasoningGym",
    "Repetition",
    "Reward",
    "RewardConfig",
    "RewardError",
    "RewardEvent",
    "RewardFunction",
    "RewardModel",
    "RewardTable",
    "Rewards",
    "ShotCost",
    "SoftOverlong",
    "UnitTests",
    "Vqa",
    "WinRate",
    "as_judge",
    "expected_accuracy",
    "needed_by",
    "score",
    "trained_on",
    "vqa_accuracy",
]
