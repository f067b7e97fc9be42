"""Every rule. A rule is one entry of `RULES`; adding it there is the whole registration."""

from groupwise.diagnosis.rule.admission import ADMISSION_REJECTS
from groupwise.diagnosis.rule.advantage import ADVANTAGE_ONE_SIDED, ADVANTAGE_SCALE, ADVANTAGE_TURNED
from groupwise.diagnosis.rule.auxiliary import CONSISTENCY_CREEP, SUPERVISED_NOT_FALLING
from groupwise.diagnosis.rule.average import AVERAGE_LAGS
from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.rule.batch import TOO_FEW_MEMBERS
from groupwise.diagnosis.rule.clip import CLIP_MOSTLY_ACTS, CLIP_NEVER_ACTS
from groupwise.diagnosis.rule.constant import REWARD_CONSTANT, SAMPLES_ALIKE
from groupwise.diagnosis.rule.cut_prompts import PROMPTS_TRUNCATED
from groupwise.diagnosis.rule.data import HELD_OUT_UNLIKE_TRAINING, TRAINING_UNLIKE_HELD_OUT
from groupwise.diagnosis.rule.dead import DEAD_NEGATIVES, DEAD_POSITIVES
from groupwise.diagnosis.rule.divergence import DIVERGENCE_NEGATIVE, KL_RUNAWAY, REFERENCE_ELSEWHERE
from groupwise.diagnosis.rule.entropy import ENTROPY_COLLAPSE
from groupwise.diagnosis.rule.exploration import EXPLORATION_TOO_STRONG
from groupwise.diagnosis.rule.generator import GENERATOR_DRIFTS
from groupwise.diagnosis.rule.groups import ALL_FLAT
from groupwise.diagnosis.rule.hacking import JUDGE_FALLS
from groupwise.diagnosis.rule.ignored import REWARD_IGNORES_ANSWER
from groupwise.diagnosis.rule.learning_rate import LEARNING_RATE_TOO_HIGH, LEARNING_RATE_TOO_LOW
from groupwise.diagnosis.rule.left_out import DECISIONS_LEFT_OUT
from groupwise.diagnosis.rule.length import LENGTH_CREEP
from groupwise.diagnosis.rule.loss import LOSS_ZERO, POLICY_LOSS_GROWS
from groupwise.diagnosis.rule.never_earn import PROMPTS_NEVER_EARN
from groupwise.diagnosis.rule.noise import REWARD_IS_NOISE
from groupwise.diagnosis.rule.overfitting import LEARNS_BY_HEART
from groupwise.diagnosis.rule.place import REWARD_FOLLOWS_PLACE
from groupwise.diagnosis.rule.preference import JUDGE_DISAGREES, REWARD_FOLLOWS_LENGTH
from groupwise.diagnosis.rule.progress import REWARD_FALLS, REWARD_FLAT
from groupwise.diagnosis.rule.prompts import PROMPTS_OF_ONE_VALUE
from groupwise.diagnosis.rule.prompts_come_back import PROMPTS_COME_BACK
from groupwise.diagnosis.rule.randomness import POLICY_BECOMES_RANDOM
from groupwise.diagnosis.rule.ratio import RATIO_ALWAYS_ONE, RATIO_NOT_ONE
from groupwise.diagnosis.rule.repeated_evaluation import EVALUATION_REPEATS
from groupwise.diagnosis.rule.repetition import TEXTS_REPEAT
from groupwise.diagnosis.rule.reward_parts import REWARD_DOMINATES, REWARD_MISSING
from groupwise.diagnosis.rule.rewritten import WEIGHTS_REWRITTEN
from groupwise.diagnosis.rule.rounding import STEPS_ROUND_AWAY
from groupwise.diagnosis.rule.slow_rewards import REWARDS_ARE_SLOW
from groupwise.diagnosis.rule.stopped import STOPPED_EARLY
from groupwise.diagnosis.rule.terms import DIVERGENCE_HOLDS, POLICY_TERM_DROWNED
from groupwise.diagnosis.rule.truncation import ALL_TRUNCATED, LIMIT_TEACHES_BREVITY
from groupwise.diagnosis.rule.unchanged import WEIGHTS_UNCHANGED
from groupwise.diagnosis.rule.updates import NO_UPDATE, NOT_FINITE
from groupwise.diagnosis.rule.weight_decay import WEIGHT_DECAY_TOO_HIGH

RULES: tuple[Rule, ...] = (
    LOSS_ZERO,
    REWARD_CONSTANT,
    REWARD_IGNORES_ANSWER,
    REWARD_FOLLOWS_PLACE,
    REWARD_IS_NOISE,
    ALL_FLAT,
    NOT_FINITE,
    NO_UPDATE,
    WEIGHTS_UNCHANGED,
    STEPS_ROUND_AWAY,
    WEIGHTS_REWRITTEN,
    ALL_TRUNCATED,
    LIMIT_TEACHES_BREVITY,
    TEXTS_REPEAT,
    PROMPTS_TRUNCATED,
    DECISIONS_LEFT_OUT,
    PROMPTS_OF_ONE_VALUE,
    PROMPTS_NEVER_EARN,
    PROMPTS_COME_BACK,
    TOO_FEW_MEMBERS,
    ADMISSION_REJECTS,
    EXPLORATION_TOO_STRONG,
    TRAINING_UNLIKE_HELD_OUT,
    HELD_OUT_UNLIKE_TRAINING,
    AVERAGE_LAGS,
    EVALUATION_REPEATS,
    REWARDS_ARE_SLOW,
    STOPPED_EARLY,
    LEARNS_BY_HEART,
    GENERATOR_DRIFTS,
    RATIO_NOT_ONE,
    RATIO_ALWAYS_ONE,
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
    REFERENCE_ELSEWHERE,
    DIVERGENCE_NEGATIVE,
    KL_RUNAWAY,
    POLICY_BECOMES_RANDOM,
    WEIGHT_DECAY_TOO_HIGH,
    DIVERGENCE_HOLDS,
    POLICY_TERM_DROWNED,
    CLIP_NEVER_ACTS,
    CLIP_MOSTLY_ACTS,
    DEAD_NEGATIVES,
    DEAD_POSITIVES,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    ADVANTAGE_TURNED,
    ADVANTAGE_ONE_SIDED,
    ADVANTAGE_SCALE,
    POLICY_LOSS_GROWS,
    SUPERVISED_NOT_FALLING,
    CONSISTENCY_CREEP,
)

__all__ = ["RULES", "Rule", "Seen"]
