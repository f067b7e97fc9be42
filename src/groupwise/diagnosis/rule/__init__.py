"""Every rule. A rule is one entry of `RULES`; adding it there is the whole registration."""

from groupwise.diagnosis.rule.advantage import ADVANTAGE_ONE_SIDED, ADVANTAGE_SCALE
from groupwise.diagnosis.rule.auxiliary import CONSISTENCY_CREEP, SUPERVISED_NOT_FALLING
from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.rule.clip import CLIP_MOSTLY_ACTS, CLIP_NEVER_ACTS
from groupwise.diagnosis.rule.constant import REWARD_CONSTANT, SAMPLES_ALIKE
from groupwise.diagnosis.rule.dead import DEAD_NEGATIVES, DEAD_POSITIVES
from groupwise.diagnosis.rule.divergence import KL_RUNAWAY
from groupwise.diagnosis.rule.entropy import ENTROPY_COLLAPSE
from groupwise.diagnosis.rule.generator import GENERATOR_DRIFTS
from groupwise.diagnosis.rule.groups import ALL_FLAT
from groupwise.diagnosis.rule.hacking import JUDGE_FALLS
from groupwise.diagnosis.rule.learning_rate import LEARNING_RATE_TOO_HIGH, LEARNING_RATE_TOO_LOW
from groupwise.diagnosis.rule.length import LENGTH_CREEP
from groupwise.diagnosis.rule.loss import LOSS_ZERO, POLICY_LOSS_GROWS
from groupwise.diagnosis.rule.preference import JUDGE_DISAGREES, REWARD_FOLLOWS_LENGTH
from groupwise.diagnosis.rule.progress import REWARD_FALLS, REWARD_FLAT
from groupwise.diagnosis.rule.ratio import RATIO_NOT_ONE
from groupwise.diagnosis.rule.reward_parts import REWARD_DOMINATES, REWARD_MISSING
from groupwise.diagnosis.rule.truncation import ALL_TRUNCATED
from groupwise.diagnosis.rule.updates import NO_UPDATE, NOT_FINITE

RULES: tuple[Rule, ...] = (
    LOSS_ZERO,
    REWARD_CONSTANT,
    ALL_FLAT,
    NOT_FINITE,
    NO_UPDATE,
    ALL_TRUNCATED,
    GENERATOR_DRIFTS,
    RATIO_NOT_ONE,
    REWARD_FLAT,
    REWARD_FALLS,
    REWARD_DOMINATES,
    REWARD_MISSING,
    JUDGE_FALLS,
    JUDGE_DISAGREES,
    REWARD_FOLLOWS_LENGTH,
    SAMPLES_ALIKE,
    ENTROPY_COLLAPSE,
    LENGTH_CREEP,
    KL_RUNAWAY,
    CLIP_NEVER_ACTS,
    CLIP_MOSTLY_ACTS,
    DEAD_NEGATIVES,
    DEAD_POSITIVES,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    ADVANTAGE_ONE_SIDED,
    ADVANTAGE_SCALE,
    POLICY_LOSS_GROWS,
    SUPERVISED_NOT_FALLING,
    CONSISTENCY_CREEP,
)

__all__ = ["RULES", "Rule", "Seen"]
