"""A policy that runs away from its reference, and divergences that are none."""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import Rule, Seen, number
from groupwise_look.diagnosis.rule.optimisation import UNMOVED
from groupwise_look.diagnosis.rule.rising import SHARE_OF_REACH, rise
from groupwise_look.diagnosis.series import WINDOW
from groupwise_look.diagnosis.stage import Stage

_DIVERGENCE_FEW = 5
_APART = 0.1
"""Nats a decision between a policy and its reference before the first update, beyond which they are two policies."""
_NEGATIVE = 0.05
"""Nats a decision below 0 that no noise of an estimate makes in every step."""


def _divergence_look(stage: Stage) -> Seen | None:
    count = stage.count("kl")
    start, last = stage.first("kl", WINDOW // 2), stage.last("kl", WINDOW // 2)
    before = stage.kl_before(WINDOW // 2, max(WINDOW // 2, count // 3))
    reward = stage.ends("reward", WINDOW // 2)
    if start is None or last is None or before is None or reward is None or count < 2 * WINDOW:
        return None
    grown, earlier = last.mean - before.mean, max(before.mean - start.mean, 0.0)
    # A drift at constant pace grows by half as much in the last third as in the two before; a random walk's square by a
    # little more than they.
    accelerates = last.mean > UNMOVED and grown > 3 * earlier and last.mean > 2 * before.mean and last.above(before)
    far = last.mean > 1.0
    allowed = _allowed(stage)
    if allowed is not None and last.mean <= allowed:
        return None
    if not (accelerates or far) or reward[1].above(reward[0]) or _may_have_risen(stage):
        return None
    sentence = (
        f"The divergence from the reference went from {number(before.mean)} to {number(last.mean)} nats a decision in"
        " the last third of the steps"
    )
    return Seen(
        f"{sentence}, and the reward has not risen ({number(reward[0].mean)} at first, {number(reward[1].mean)} now).",
        [before, last, reward[1]],
    )


def _may_have_risen(stage: Stage) -> bool:
    """Returns whether, from the first third of the steps to the last, a rise that is worth what the KL allowed may hide
    in the noise of the rewards. Where groups have no spread of their own, none is looked for.
    """
    earned = rise(stage, min(2 * WINDOW, stage.count("reward") // 3))
    return earned is not None and not earned.is_none


def _allowed(stage: Stage) -> float | None:
    """Returns the divergence in nats up to which a coefficient that follows it is content: it falls below that by
    design.

    Returns:
        `upper` of a multiplicative coefficient, `target` of an adaptive one, None of any other.
    """
    for key in ("upper", "target"):
        limit = stage.setting(f"divergence.beta.{key}")
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return None


def _look_at_start(stage: Stage) -> Seen | None:
    start, reward, last = (
        stage.first("kl", 1),
        stage.first("reward", _DIVERGENCE_FEW),
        stage.last("reward", _DIVERGENCE_FEW),
    )
    share = stage.first("on_policy_share", 1)
    if start is None or reward is None or last is None or stage.num_steps < 2 * _DIVERGENCE_FEW or _is_older(stage):
        return None
    # Several updates on the first batch have moved the policy before its mean is taken.
    if start.mean < _APART or share is None or share.mean < 1 or last.above(reward):
        return None
    return Seen(
        f"Before its first update the policy was {number(start.mean)} nats a decision from its reference; the reward"
        f" has not risen ({number(reward.mean)} at first, {number(last.mean)} now).",
        [start, reward, last],
    )


def _is_older(stage: Stage) -> bool:
    """Returns whether the reference is by its rule that of an earlier stage: it was measured there, or it is the model
    with its adapter switched off.
    """
    is_off = stage.setting("domain.model.lora") and stage.setting("reference.adapter") == "off"
    return "kl" in stage.earlier or bool(stage.earlier and is_off)


def _look_below_zero(stage: Stage) -> Seen | None:
    # From the policy that acted, a mean over what it sampled is below 0 wherever the policy has moved.
    # So it is of the estimator k1 where a reference follows the policy and a batch has several updates.
    share = stage.last("on_policy_share", _DIVERGENCE_FEW)
    off_policy = stage.setting("divergence.kind") == "k1" and share is not None and share.mean < 1
    if stage.setting("divergence.against") == "behaviour" or off_policy:
        return None
    newest, before = stage.last("kl", _DIVERGENCE_FEW), stage.before("kl", _DIVERGENCE_FEW, _DIVERGENCE_FEW)
    if newest is None or before is None or max(*newest.values, *before.values) > -_NEGATIVE:
        return None
    if newest.mean >= before.mean:
        return None
    return Seen(
        f"The divergence from the reference was {number(before.mean)} nats a decision and is {number(newest.mean)}.",
        [before, newest],
    )


REFERENCE_ELSEWHERE = Rule(
    "reference_elsewhere",
    "warning",
    "Is my reference the model that I began with?",
    ("kl", "on_policy_share", "reward"),
    f"before the first update the KL is {_APART} nats a decision or more (it is read at the first step, if all its"
    f" updates were on-policy), and after {2 * _DIVERGENCE_FEW} steps the reward has not risen. The rule is silent"
    " if an"
    " earlier stage measured a KL, or trained an adapter that the reference lacks",
    "The policy that training begins with is usually its own reference, and its KL is 0 before the first update."
    " This reference is another policy: its weights were not loaded, or it is another model or adapter. The"
    " divergence pulls the policy towards it.",
    "Load the reference from the folder that training begins with, or let it be made from the policy"
    " (reference.kind = frozen). Then compare the log-probs of both on one batch: they are equal at the start.",
    _look_at_start,
    phrase="the reference is another policy than the one that training began with",
    follows=("ratio_not_one", "generator_drifts"),
)
DIVERGENCE_NEGATIVE = Rule(
    "divergence_negative",
    "fault",
    "Why is my KL negative?",
    ("kl",),
    f"in each of the last {2 * _DIVERGENCE_FEW} steps the KL is -{_NEGATIVE} nats a decision or less, and it falls."
    " The rule"
    " is silent with divergence.against = behaviour, and for k1 if updates are off-policy",
    "A divergence is never below 0, apart from the noise of its estimate. Its sign is turned, or policy and"
    " reference have changed places. The loss then pays the policy for leaving its reference.",
    "Correct the sign in the divergence's code: it is E[log policy - log reference] under the policy. Or take"
    " divergence.kind = k3, which cannot be negative.",
    _look_below_zero,
    phrase="the divergence is negative and pays the policy for leaving its reference",
)
KL_RUNAWAY = Rule(
    "kl_runaway",
    "warning",
    "Why does my KL explode?",
    ("kl", "reward", "reward_std", "completions/mean_length"),
    f"from step {2 * WINDOW} on, the KL is above 1 nat a decision, or it is above {UNMOVED:g} and grew three times"
    " as much in the last third of the steps as before. If beta adapts, the KL is also above its target or upper"
    f" bound. And from the first to the last third of the steps the reward has gained less than {SHARE_OF_REACH}"
    " of the spread inside groups, even with two standard errors added",
    "The policy moves away from its reference and earns no more for it.",
    "Lower optimiser.learning_rate, raise divergence.beta or set divergence.beta.kind = adaptive, narrow the"
    " trust region, or lower train.max_grad_norm.",
    _divergence_look,
    phrase="the policy runs away from its reference",
    follows=("reference_elsewhere", "learning_rate_too_high", "weight_decay_too_high", "policy_becomes_random"),
    steps="smaller",
)


# Decisions that are sampled and not trained on.

_LEFT_OUT_FEW = 5
_SHARE = 0.5
_CUT = 0.2
"""Share of members that are cut off, beyond which it is the length limit that makes them short."""
_SAMPLED = "eval/sampled/length"


def _left_out_look(stage: Stage) -> Seen | None:
    lengths = stage.first("completions/mean_length", _LEFT_OUT_FEW)
    evaluated = next((seen for seen in stage.evaluated if seen.metric == _SAMPLED), None)
    if lengths is None or evaluated is None or evaluated.steps[0] >= lengths.steps[0]:
        return None
    cut, limit = (
        stage.first("completions/clipped_ratio", _LEFT_OUT_FEW),
        stage.setting("domain.sampling.max_new_tokens"),
    )
    if cut is not None and cut.mean > _CUT and isinstance(limit, int) and lengths.mean >= _SHARE * limit:
        return None
    # Answers of several turns are measured with the words of others between them, which nobody trains on.
    if stage.setting("domain.environment") or lengths.mean + 2 * lengths.error >= _SHARE * evaluated.values[0]:
        return None
    return Seen(
        f"In the first {_LEFT_OUT_FEW} steps a member had {number(lengths.mean)} decisions to train on. In the"
        " evaluation"
        f" before, a sampled answer had {number(evaluated.values[0])} tokens.",
        [lengths, evaluated],
    )


DECISIONS_LEFT_OUT = Rule(
    "decisions_left_out",
    "warning",
    "Is the whole answer trained on?",
    ("completions/mean_length", "completions/clipped_ratio", "eval/NAME"),
    f"in the first {_LEFT_OUT_FEW} steps members have less than {_SHARE} of the decisions that sampled answers had"
    " in the"
    f" evaluation before, and the run has no environment. The rule is silent if more than {_CUT} of the members"
    f" were cut off at a length limit of at most {1 / _SHARE:g} times their length",
    "A mask leaves out most of what the policy writes. Tokens before or after some mark never become more or less"
    " probable, though the reward judges them.",
    "Train on the whole completion: look at the mask of one member beside its tokens. If evaluated prompts need"
    " longer answers than trained ones, or have another limit (domain.sampling), that alone may be the reason.",
    _left_out_look,
    phrase="most of an answer is not trained on",
)


# Weights that something else than the optimiser writes.

_REWRITTEN_FEW = 3


def _rewritten_look(stage: Stage) -> Seen | None:
    # The metric is there only where something wrote, so that no number of quiet steps takes it back.
    moved, change = stage.first("weights/rewritten", _REWRITTEN_FEW), stage.first("weights/change", _REWRITTEN_FEW)
    if moved is None or change is None:
        return None
    return Seen(
        f"Something moved the weights between updates, {stage.count('weights/rewritten')} times so far: the first"
        f" {_REWRITTEN_FEW} times by {moved.mean:.1e} of their size, while an update itself moved them by"
        f" {change.mean:.1e}.",
        [moved, change],
    )


WEIGHTS_REWRITTEN = Rule(
    "weights_rewritten",
    "fault",
    "Why do updates get lost?",
    ("weights/rewritten", "weights/change"),
    f"{_REWRITTEN_FEW} times, the weights at the start of an update differed from those at the end of the update"
    " before",
    "Something other than the optimiser writes weights: an average that an evaluation loads and does not take"
    " back, a callback, an engine, or another process that shares the memory. What updates learn is lost or mixed"
    " with it.",
    "Let your callbacks and engines copy weights instead of writing them. train.weight_average keeps an average"
    " beside the weights and evaluates it.",
    _rewritten_look,
    phrase="something else writes the weights between updates",
)
