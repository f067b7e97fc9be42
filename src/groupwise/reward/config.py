"""Every kind of reward: a file joins by standing in this union, and nowhere else."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.reward.aesthetic import Aesthetic
from groupwise.reward.callable import CallableReward
from groupwise.reward.classifier import Classifier
from groupwise.reward.clip_score import ClipScore
from groupwise.reward.coherence import Coherence
from groupwise.reward.exact_answer import ExactAnswer
from groupwise.reward.format import Format
from groupwise.reward.jpeg_size import JpegSize
from groupwise.reward.judge import Judge
from groupwise.reward.knights_and_knaves import KnightsAndKnaves
from groupwise.reward.length import Length
from groupwise.reward.lpips import Lpips
from groupwise.reward.math_verify import MathVerify
from groupwise.reward.numeric_answer import NumericAnswer
from groupwise.reward.pick_score import PickScore
from groupwise.reward.psnr import Psnr
from groupwise.reward.reasoning_gym import ReasoningGym
from groupwise.reward.repetition import Repetition
from groupwise.reward.reward_model import RewardModel
from groupwise.reward.shot_cost import ShotCost
from groupwise.reward.soft_overlong import SoftOverlong
from groupwise.reward.squared_error import SquaredError
from groupwise.reward.ssim import Ssim
from groupwise.reward.unit_tests import UnitTests
from groupwise.reward.vqa import Vqa
from groupwise.reward.win_rate import WinRate

RewardConfig = Annotated[
    ExactAnswer
    | NumericAnswer
    | MathVerify
    | Format
    | Length
    | Coherence
    | Repetition
    | SoftOverlong
    | KnightsAndKnaves
    | ReasoningGym
    | RewardModel
    | Judge
    | UnitTests
    | JpegSize
    | Classifier
    | ClipScore
    | PickScore
    | Aesthetic
    | WinRate
    | Psnr
    | SquaredError
    | Ssim
    | Lpips
    | Vqa
    | ShotCost
    | CallableReward,
    Field(discriminator="kind"),
]
