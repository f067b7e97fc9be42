"""Rewards: callables that score completions, and their combination. Importing this package loads neither torch nor
transformers; the module of a kind is imported when that kind is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.callable import CallableReward
from groupwise.reward.config import RewardConfig
from groupwise.reward.error import RewardError
from groupwise.reward.scoring.judge_role import as_judge, trained_on
from groupwise.reward.scoring.score import Rewards, needed_by, score
from groupwise.reward.scoring.table import RewardEvent, RewardTable
from groupwise.reward.value_with_event import Noted

if TYPE_CHECKING:
    from groupwise.reward.images.jpeg_size import JpegSize
    from groupwise.reward.images.lpips import Lpips
    from groupwise.reward.images.psnr import Psnr
    from groupwise.reward.images.squared_error import SquaredError
    from groupwise.reward.images.ssim import Ssim
    from groupwise.reward.models.aesthetic import Aesthetic
    from groupwise.reward.models.classifier import Classifier
    from groupwise.reward.models.clip_score import ClipScore
    from groupwise.reward.models.judge import Judge
    from groupwise.reward.models.pick_score import PickScore
    from groupwise.reward.models.reward_model import RewardModel
    from groupwise.reward.models.win_rate import WinRate
    from groupwise.reward.programs.unit_tests import UnitTests
    from groupwise.reward.texts.coherence import Coherence
    from groupwise.reward.texts.exact_answer import ExactAnswer
    from groupwise.reward.texts.extract import Extract
    from groupwise.reward.texts.format import Format
    from groupwise.reward.texts.knights_and_knaves import KnightsAndKnaves
    from groupwise.reward.texts.length import Length
    from groupwise.reward.texts.math_verify import MathVerify
    from groupwise.reward.texts.numeric_answer import NumericAnswer
    from groupwise.reward.texts.reasoning_gym import ReasoningGym
    from groupwise.reward.texts.repetition import Repetition
    from groupwise.reward.texts.soft_overlong import SoftOverlong

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
    "Lpips",
    "MathVerify",
    "Noted",
    "NumericAnswer",
    "PickScore",
    "Psnr",
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
    "SquaredError",
    "Ssim",
    "UnitTests",
    "WinRate",
    "as_judge",
    "needed_by",
    "score",
    "trained_on",
]

_PLACES = {
    "JpegSize": "groupwise.reward.images.jpeg_size",
    "Lpips": "groupwise.reward.images.lpips",
    "Psnr": "groupwise.reward.images.psnr",
    "SquaredError": "groupwise.reward.images.squared_error",
    "Ssim": "groupwise.reward.images.ssim",
    "Aesthetic": "groupwise.reward.models.aesthetic",
    "Classifier": "groupwise.reward.models.classifier",
    "ClipScore": "groupwise.reward.models.clip_score",
    "Judge": "groupwise.reward.models.judge",
    "PickScore": "groupwise.reward.models.pick_score",
    "RewardModel": "groupwise.reward.models.reward_model",
    "WinRate": "groupwise.reward.models.win_rate",
    "UnitTests": "groupwise.reward.programs.unit_tests",
    "Coherence": "groupwise.reward.texts.coherence",
    "ExactAnswer": "groupwise.reward.texts.exact_answer",
    "Extract": "groupwise.reward.texts.extract",
    "Format": "groupwise.reward.texts.format",
    "KnightsAndKnaves": "groupwise.reward.texts.knights_and_knaves",
    "Length": "groupwise.reward.texts.length",
    "MathVerify": "groupwise.reward.texts.math_verify",
    "NumericAnswer": "groupwise.reward.texts.numeric_answer",
    "ReasoningGym": "groupwise.reward.texts.reasoning_gym",
    "Repetition": "groupwise.reward.texts.repetition",
    "SoftOverlong": "groupwise.reward.texts.soft_overlong",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
