"""A policy that became deterministic before it became good."""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise_look.diagnosis.rule.rising import CLOSED, FEW, START_GAP_ERRORS, start_gap
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


def entropy(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and newest entropy, exact where the loss reads it, otherwise estimated by the surprisal; `None`
    of a density, whose entropy has no zero.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    for metric in ("entropy", "surprisal"):
        ends = stage.ends(metric, count)
        if ends is not None:
            return ends if min(min(ends[0].values), min(ends[1].values)) >= 0 and ends[0].mean > 0 else None
    return None


def unused(stage: Stage, count: int, share: float = 0.5) -> tuple[Series, Series] | None:
    """Returns the best of a group at the start and the reward now, where less than a share of the way from the start's
    mean to that best was gone.

    Args:
        stage: the rows.
        count: steps at either end.
        share: of the way.
    """
    best, reward = stage.first("groups/best", count), stage.ends("reward", count)
    if best is None or reward is None:
        return None
    start, last = reward
    return (
        (best, last) if best.mean > start.mean and last.mean - start.mean < share * (best.mean - start.mean) else None
    )


_SHARE = 0.25
"""The best of a group is luck in part, which no policy repeats: in selection, where it is most of it, sound runs come a
third to two thirds of the way.
"""


def _entropy_look(stage: Stage) -> Seen | None:
    for count in (10, 20):
        ends, missed = entropy(stage, count), unused(stage, count, _SHARE)
        if ends is None or missed is None or ends[1].mean > 0.1 * ends[0].mean:
            continue
        (start, last), (best, reward) = ends, missed
        sentence = (
            f"Entropy fell from {number(start.mean)} to {number(last.mean)} nats a decision. The reward is"
            f" {number(reward.mean)}; at the start the best member of a group earned {number(best.mean)}."
        )
        return Seen(sentence, [start, last, best, reward])
    return None


ENTROPY_COLLAPSE = Rule(
    "entropy_collapse",
    "warning",
    "Why did learning stop half way? Why are all members of a group alike?",
    ("entropy", "surprisal", "groups/best", "reward"),
    "entropy (or surprisal) has fallen to a tenth of its start, and the reward has risen by less than a quarter"
    " of the distance from its start to what the best member of a group earned then",
    "The members of a group are nearly copies of each other. The policy tries nothing new, and groups become flat"
    " whether their answer is right or wrong.",
    "Lower optimiser.learning_rate, raise trust.high (as method dapo does), set entropy = 0.001 or more or"
    " divergence.beta above 0, or take a larger train.group_size.",
    _entropy_look,
    phrase="the policy has collapsed",
    follows=(
        *("learning_rate_too_high", "judge_falls", "judge_disagrees", "reward_dominates", "weight_decay_too_high"),
        *("decisions_left_out", "ratio_always_one"),
    ),
    steps="smaller",
)


# Sampling so noisy that what is tried says nothing about the policy.

_BELOW = 0.75
_HOT = 3.0


def _exploration_look(stage: Stage) -> Seen | None:
    temperature = stage.last("settings/temperature", FEW)
    hot = temperature if temperature is not None and temperature.mean >= _HOT else None
    is_below = hot is not None and _earns_less_than_without(stage)
    if stage.num_steps < WINDOW:
        return None
    if temperature is None or temperature.mean > 1:
        # At 1 or less texts are drawn from the policy itself, without noise of the sampler.
        seen = _noisy(stage)
        if seen is not None:
            return seen
    if hot is not None and (is_below or not rewards_rise(stage)):
        risen = " to what an evaluation earned before" if is_below else ""
        return Seen(
            f"Members are sampled at temperature {number(hot.mean)}, and the reward has not risen{risen}.", [hot]
        )
    return None


def _earns_less_than_without(stage: Stage) -> bool:
    """Returns whether members earn less than some evaluation before the first step did, however they have risen."""
    last = stage.last("reward", FEW)
    starts = [seen.values[0] for seen in stage.evaluated if seen.metric.endswith("/reward")]
    return last is not None and any(last.mean + 2 * last.error < start for start in starts)


def _noisy(stage: Stage) -> Seen | None:
    # Every evaluation lies above the first steps, so that one of few members cannot look like noise of the sampler.
    gap = start_gap(stage)
    # Where the evaluation has fallen as well, it is the policy or the data that is broken.
    if gap is None or gap.has_fallen or gap.is_closing(stage):
        return None
    if not gap.is_wide(stage, min(gap.evaluation.values), _BELOW):
        return None
    return Seen(
        f"Members of the first {FEW} steps earned {number(gap.reward.mean)} on average. In the evaluation before, the"
        f" same policy earned {number(gap.start)} ({gap.evaluation.metric.removeprefix('eval/')}). The reward has not"
        " risen.",
        gap.evidence,
    )


EXPLORATION_TOO_STRONG = Rule(
    "exploration_too_strong",
    "warning",
    "Is my sampling too random?",
    ("reward", "reward_std", "rewards_std", "eval/NAME", "settings/temperature"),
    f"either of two things. Every evaluation of the reward exceeds the mean reward of the first {FEW} steps, plus"
    f" two standard errors, by {_BELOW} of the spread inside groups, by a fifth of the larger of the two values"
    f" and by {START_GAP_ERRORS:g} standard errors of an evaluation; it has not fallen; and after {WINDOW} steps the"
    " reward"
    f" has risen by less than {CLOSED:.0%} of that gap (of texts, only at a temperature above 1). Or the"
    f" temperature is {_HOT:g} or more, and the reward has not risen or lies below the first evaluation",
    "Members are drawn so far from what the policy would do that their rewards hardly depend on the policy:"
    " groups compare noise. This is also found if evaluated prompts are far easier than trained ones.",
    "Lower domain.sampling.temperature (domain.temperature of a selector) to about 1, or lower"
    " domain.policy.sigma or the sampler's noise, until members earn nearly what the evaluation does.",
    _exploration_look,
    phrase="sampling is too random",
    follows=("reward_ignores_answer", "reward_constant", "reward_missing", "samples_alike", "all_truncated"),
)


# A policy that forgets what it knew and draws more and more at random.

_FEW = 5
_RANDOMNESS_GROWTH = 2.0
_NATS = 0.5


def _randomness_look(stage: Stage) -> Seen | None:
    ends = stage.ends("surprisal", _FEW)
    if ends is None or rewards_rise(stage, _FEW):
        return None
    start, last = ends
    if min(start.values) < 0 or last.mean < max(_NATS, _RANDOMNESS_GROWTH * start.mean) or not last.above(start):
        return None
    reward = stage.ends("reward", _FEW)
    sentence = f"The surprisal of what is sampled rose from {number(start.mean)} to {number(last.mean)} nats a decision"
    coefficient = stage.setting("entropy")
    paid = isinstance(coefficient, int | float) and coefficient > 0
    return Seen(
        f"{sentence}, and the reward did not rise"
        + (f" ({number(reward[0].mean)} at first, {number(reward[1].mean)} now)." if reward else "."),
        [start, last, *(reward or ())],
        means=f"The entropy bonus (entropy = {number(coefficient)}) pays more than the reward does." if paid else "",
        advice="Take a tenth of entropy, or 0." if paid else "",
    )


POLICY_BECOMES_RANDOM = Rule(
    "policy_becomes_random",
    "warning",
    "Why does my model write nonsense after some steps?",
    ("surprisal", "reward"),
    f"the surprisal of the last {_FEW} steps is at least {_RANDOMNESS_GROWTH:g} times that of the first {_FEW} and"
    " at least"
    f" {_NATS} nats a decision, and the reward has not risen",
    "The policy samples more and more at random. Something other than the reward moves it: an entropy bonus,"
    " weight decay, or steps that are too large.",
    "Lower entropy, optimiser.weight_decay or optimiser.learning_rate, whichever is unusually high, or set"
    " divergence.beta above 0.",
    _randomness_look,
    phrase="the policy becomes random",
    follows=(
        "reference_elsewhere",
        "divergence_negative",
        "advantage_turned",
        "learning_rate_too_high",
        "weight_decay_too_high",
        "generator_drifts",
        "ratio_not_one",
    ),
    steps="smaller",
)


# Texts that say the same again and again.

_METRIC = "completions/repetition"
_MOST = 0.4
_REPETITION_GROWTH = 0.25


def _repetition_look(stage: Stage) -> Seen | None:
    start, last = stage.first(_METRIC, _FEW), stage.last(_METRIC)
    if start is None or last is None or last.mean < max(_MOST, start.mean + _REPETITION_GROWTH):
        return None
    return Seen(
        f"{last.mean:.0%} of the three-word phrases occurred earlier in the same text; in the first {_FEW} steps"
        f" {start.mean:.0%} did.",
        [start, last],
    )


TEXTS_REPEAT = Rule(
    "texts_repeat",
    "warning",
    "Why does my model say the same again and again?",
    (_METRIC,),
    f"over {WINDOW} steps at least {_MOST:.0%} of a text's three-word phrases occur earlier in the same text, and"
    f" this share is {100 * _REPETITION_GROWTH:g} percentage points above that of the first {_FEW} steps",
    "Texts have become repetitive: the policy has collapsed, or the reward pays for what repetition supplies.",
    "Look at the end of long texts in rollouts/. If repetition earns, mend the reward. Otherwise lower"
    " optimiser.learning_rate or set divergence.beta above 0.",
    _repetition_look,
    phrase="texts repeat themselves",
    follows=(
        "prompts_truncated",
        "reward_follows_length",
        "learning_rate_too_high",
        "weight_decay_too_high",
        "judge_disagrees",
        "judge_falls",
        "reward_dominates",
    ),
)


# Answers that grow without being rewarded for it.


def _length_look(stage: Stage) -> Seen | None:
    ends = stage.ends("completions/mean_length")
    reward = stage.last("reward")
    if ends is None or reward is None:
        return None
    start, last = ends
    if last.mean < 1.5 * start.mean or not last.above(start) or rewards_rise(stage):
        return None
    sentence = (
        f"Members grew from {number(start.mean)} to {number(last.mean)} decisions, and the reward did not rise with"
        f" them ({number(reward.mean)} now)."
    )
    return Seen(sentence, [start, last, reward])


LENGTH_CREEP = Rule(
    "length_creep",
    "warning",
    "Why do the answers get longer and longer?",
    ("completions/mean_length", "reward"),
    f"the mean length of the last {WINDOW} steps is at least 1.5 times that of the first {WINDOW}, and the reward has"
    " not risen",
    "If the loss is a mean over each member's decisions, a long wrong answer costs little per token, so length"
    " grows by itself. Length also grows if a reward pays for it by accident.",
    "Set aggregation.kind = token_mean or fixed_length (as methods dapo and dr_grpo do), add a reward of kind"
    " soft_overlong, or look at the rewards of long answers.",
    _length_look,
    phrase="answers grow longer",
    follows=("reward_follows_length", "weight_decay_too_high", "policy_becomes_random"),
)


# Members cut off by the length limit.

_START = 5
"""Steps that show how long answers were when the stage began."""
_CUT = 0.2
_CAUSES = "Either the reward pays for length, or the policy has collapsed and no longer ends its answers"
_HOLD = (
    "Look in rollouts/ at the rewards of long answers. A reward of kind soft_overlong or a lower"
    " optimiser.learning_rate stops the growth; a higher domain.sampling.max_new_tokens would only feed it."
)


def _truncation_look(stage: Stage) -> Seen | None:
    cut = stage.last("completions/clipped_ratio")
    if cut is None or cut.mean < 0.9:
        return None
    sentence = f"{cut.mean:.0%} of the members of the last {WINDOW} steps were cut off by the length limit."
    start = stage.first("completions/clipped_ratio", _START)
    if start is None or (start.mean > 0.5 and not _has_grown(stage)):
        return Seen(
            sentence,
            [cut],
            advice="Raise domain.sampling.max_new_tokens, or write stop strings that fit the model's format.",
        )
    return Seen(
        sentence,
        [start, cut],
        means=f"In the first {_START} steps {start.mean:.0%} were cut off{_growth(stage)}. {_CAUSES}.",
        advice=_HOLD,
    )


def _has_grown(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began; the limit hides what grows beyond it."""
    start, last = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    return start is not None and last is not None and last.mean >= 1.5 * start.mean and last.above(start)


def _brief(stage: Stage) -> Seen | None:
    cut = stage.first("completions/clipped_ratio", _START), stage.last("completions/clipped_ratio")
    length = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    if cut[0] is None or cut[1] is None or length[0] is None or length[1] is None or stage.num_steps < 2 * WINDOW:
        return None
    fewer = cut[0].mean >= _CUT and cut[1].mean <= 0.25 * cut[0].mean
    if not fewer or not length[0].above(length[1]) or unused(stage, _START, 0.25) is None:
        return None
    return Seen(
        f"In the first {_START} steps {cut[0].mean:.0%} of the members were cut off by the length limit, and now"
        f" {cut[1].mean:.0%} are. Members have shrunk from {number(length[0].mean)} to {number(length[1].mean)}"
        " decisions.",
        [cut[0], cut[1], length[0], length[1]],
    )


def _growth(stage: Stage) -> str:
    start, last = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    return (
        ""
        if start is None or last is None
        else f", and answers have grown from {number(start.mean)} to {number(last.mean)} decisions"
    )


ALL_TRUNCATED = Rule(
    "all_truncated",
    "fault",
    "Why are all answers cut off?",
    ("completions/clipped_ratio",),
    f"at least 90 % of the members are cut off over {WINDOW} steps",
    "An answer that is cut off has no end and usually no result: the reward judges a fragment, and the policy"
    " cannot learn to stop.",
    "If answers were cut off from the first step on, raise domain.sampling.max_new_tokens, or write stop"
    " strings that fit the model's format. If answers grew until they met the limit, add a reward of kind"
    " soft_overlong, or lower optimiser.learning_rate.",
    _truncation_look,
    phrase="all answers are truncated",
    follows=(
        "reward_follows_length",
        "learning_rate_too_high",
        "length_creep",
        "entropy_collapse",
        "policy_becomes_random",
        "weight_decay_too_high",
        "texts_repeat",
    ),
)
LIMIT_TEACHES_BREVITY = Rule(
    "limit_teaches_brevity",
    "warning",
    "Why do answers get shorter and no better?",
    ("completions/clipped_ratio", "completions/mean_length", "groups/best", "reward"),
    f"after {2 * WINDOW} steps: at least {_CUT:.0%} of the members of the first {_START} steps were cut off, and"
    f" at most a quarter as many of the last {WINDOW}; the mean length has fallen; and the reward has risen by"
    " less than a quarter of the distance from its start to what the best member of a group earned then",
    "Long answers had no room, so only short ones could earn. The policy learns to be brief, perhaps to leave out"
    " the work.",
    "Raise domain.sampling.max_new_tokens until the model that the stage begins with is hardly ever cut off.",
    _brief,
    phrase="the length limit teaches brevity",
    follows=("learning_rate_too_high", "reward_dominates", "judge_disagrees", "weight_decay_too_high"),
)
