"""Rewards: callables that score completions, and their combination. Importing this package loads neither torch nor
transformers; the module of a kind is imported when that kind is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from groupwise.reward.base import Noted, Reward, RewardError, RewardFunction
from groupwise.reward.callable import CallableReward
from groupwise.reward.config import RewardConfig
from groupwise.reward.scoring.score import Rewards, as_judge, needed_by, score, trained_on
from groupwise.reward.scoring.table import RewardEvent, RewardTable

if TYPE_CHECKING:
    from groupwise.reward.models.judge import Judge, WinRate
    from groupwise.reward.models.reward_model import RewardModel
    from groupwise.reward.programs.unit_tests import UnitTests
    from groupwise.reward.texts.answers import ExactAnswer, Extract, NumericAnswer
    from groupwise.reward.texts.knights_and_knaves import KnightsAndKnaves
    from groupwise.reward.texts.math_verify import MathVerify
    from groupwise.reward.texts.reasoning_gym import ReasoningGym
    from groupwise.reward.texts.style import Coherence, Format, Length, Repetition, SoftOverlong

__all__ = [
    "CallableReward",
    "Coherence",
    "ExactAnswer",
    "Extract",
    "Format",
    "Judge",
    "KnightsAndKnaves",
    "Length",
    "MathVerify",
    "Noted",
    "NumericAnswer",
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
    "SoftOverlong",
    "UnitTests",
    "WinRate",
    "as_judge",
    "needed_by",
    "score",
    "trained_on",
]

_PLACES = {
    "Judge": "groupwise.reward.models.judge",
    "RewardModel": "groupwise.reward.models.reward_model",
    "WinRate": "groupwise.reward.models.judge",
    "UnitTests": "groupwise.reward.programs.unit_tests",
    "Coherence": "groupwise.reward.texts.style",
    "ExactAnswer": "groupwise.reward.texts.answers",
    "Extract": "groupwise.reward.texts.answers",
    "Format": "groupwise.reward.texts.style",
    "KnightsAndKnaves": "groupwise.reward.texts.knights_and_knaves",
    "Length": "groupwise.reward.texts.style",
    "MathVerify": "groupwise.reward.texts.math_verify",
    "NumericAnswer": "groupwise.reward.texts.answers",
    "ReasoningGym": "groupwise.reward.texts.reasoning_gym",
    "Repetition": "groupwise.reward.texts.style",
    "SoftOverlong": "groupwise.reward.texts.style",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
