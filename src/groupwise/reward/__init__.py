"""Rewards: callables that score completions, and their combination. Importing this package loads neither torch nor
transformers; the module of a kind is imported when that kind is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from groupwise.reward.base import Noted, Reward, RewardError, RewardFunction
from groupwise.reward.callable import CallableReward
from groupwise.reward.config import RewardConfig
from groupwise.reward.scoring.score import Rewards, as_judge, score
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
    "score",
]

_MODULES = {
    "models.judge": ("Judge", "WinRate"),
    "models.reward_model": ("RewardModel",),
    "programs.unit_tests": ("UnitTests",),
    "texts.answers": ("ExactAnswer", "Extract", "NumericAnswer"),
    "texts.knights_and_knaves": ("KnightsAndKnaves",),
    "texts.math_verify": ("MathVerify",),
    "texts.reasoning_gym": ("ReasoningGym",),
    "texts.style": ("Coherence", "Format", "Length", "Repetition", "SoftOverlong"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"groupwise.reward.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
