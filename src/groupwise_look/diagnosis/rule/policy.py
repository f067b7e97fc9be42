"""A policy that collapses, wanders from its reference or is held by other terms of the loss; and its texts."""

from groupwise_look.diagnosis.rule.base import (
    Seen,
    first,
    first_of,
    has_grown,
    need,
    newest,
    newest_of,
    present,
    rewards_rise,
    saw,
    sees,
)
from groupwise_look.diagnosis.rule.movement import CHANGE, UNMOVED, entropy, first_loss, last_loss, missed_gain
from groupwise_look.diagnosis.rule.rising import evaluations_stay, rise
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


def _collapsed(stage: Stage) -> Seen | None:
    for count in (10, 20):
        # The best of a group is luck in part, which no policy repeats: in selection, where it is most of it, sound runs
        # come a third to two thirds of the way.
        ends, missed = entropy(stage, count), missed_gain(stage, count, 0.25)
        if ends and missed and ends[1].mean <= 0.1 * ends[0].mean:
            return saw("", [*ends, *missed], ends=ends, missed=missed)
    return None


def _length_creeps(stage: Stage) -> Seen | None:
    (start, last), [reward] = need(stage.ends("completions/mean_length")), newest_of(stage, WINDOW, "reward")
    if not has_grown(start, last) or rewards_rise(stage):
        return None
    return saw("", [start, last, reward], start=start, last=last, reward=reward)


def _apart_at_start(stage: Stage) -> Seen | None:
    [kl, share], [reward], [last] = (
        first_of(stage, 1, "kl", "on_policy_share"),
        first_of(stage, 5, "reward"),
        newest_of(stage, 5, "reward"),
    )
    # The reference may be that of an earlier stage: it was measured there, or it is the model without its adapter.
    is_off = stage.setting("domain.model.lora") and stage.setting("reference.adapter") == "off"
    if stage.num_steps < 10 or "kl" in stage.earlier or (stage.earlier and is_off):
        return None
    # Several updates on the first batch have moved the policy before its mean is taken.
    if kl.mean < 0.1 or share.mean < 1 or last.above(reward):
        return None
    return saw("", [kl, reward, last], kl=kl, reward=reward, last=last)


def _below_zero(stage: Stage) -> Seen | None:
    # From the policy that acted, a mean over what it sampled is below 0 wherever the policy has moved.
    # So it is of the estimator k1 where a reference follows the policy and a batch has several updates.
    share = stage.last("on_policy_share", 5)
    off_policy = stage.setting("divergence.kind") == "k1" and share is not None and share.mean < 1
    if stage.setting("divergence.against") == "behaviour" or off_policy:
        return None
    [newest], before = newest_of(stage, 5, "kl"), need(stage.before("kl", 5, 5))
    # No noise of an estimate makes that in every step.
    if max(*newest.values, *before.values) > -0.05 or newest.mean >= before.mean:
        return None
    return saw("", [before, newest], before=before, newest=newest)


def _runs_away(stage: Stage) -> Seen | None:
    count, half = stage.count("kl"), WINDOW // 2
    [start], [last] = first_of(stage, half, "kl"), newest_of(stage, half, "kl")
    before, reward = need(stage.before("kl", half, max(half, count // 3))), need(stage.ends("reward", half))
    grown, earlier, allowed = last.mean - before.mean, max(before.mean - start.mean, 0.0), _allowed(stage)
    # A drift at constant pace grows by half as much in the last third as in the two before; a random walk's square by a
    # little more than they.
    accelerates = last.mean > UNMOVED and grown > 3 * earlier and last.mean > 2 * before.mean and last.above(before)
    if count < 2 * WINDOW or not (accelerates or last.mean > 1.0) or (allowed is not None and last.mean <= allowed):
        return None
    # A rise that is worth what the KL allowed may hide in the noise of the rewards. Where groups have no spread of
    # their own, none is looked for.
    earned = rise(stage, min(2 * WINDOW, stage.count("reward") // 3))
    if reward[1].above(reward[0]) or (earned is not None and not earned.is_none):
        return None
    return saw("", [before, last, reward[1]], before=before, last=last, reward=reward)


def _allowed(stage: Stage) -> float | None:
    """Returns the divergence in nats up to which a coefficient that follows it is content, and below which it falls by
    design: `upper` of a multiplicative coefficient, `target` of an adaptive one.
    """
    for key in ("upper", "target"):
        limit = stage.setting(f"divergence.beta.{key}")
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return None


def _random(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("surprisal", 5))
    if min(start.values) < 0 or last.mean < max(0.5, 2.0 * start.mean) or not last.above(start):
        return None
    if rewards_rise(stage, 5):
        return None
    reward, coefficient = stage.ends("reward", 5) or (), stage.setting("entropy")
    numbers = f" ({reward[0]} at first, {reward[1]} now)" if reward else ""
    case = "paid" if isinstance(coefficient, int | float) and coefficient > 0 else ""
    return saw(case, [start, last, *reward], start=start, last=last, numbers=numbers, coefficient=coefficient)


def _decays(stage: Stage) -> Seen | None:
    decay, [rate] = stage.setting("optimiser.weight_decay"), newest_of(stage, 5, "learning_rate")
    if not isinstance(decay, int | float) or rewards_rise(stage, 5):
        return None
    share = decay * rate.mean
    if share < 1e-3 or share * stage.count(CHANGE) < 0.3:
        return None
    return saw("", [rate], decay=decay, rate=rate, percent=100 * share)


def _advantages(stage: Stage) -> float | None:
    """Returns the spread of advantages in groups that differ; `None` where hardly any does."""
    spread, flat = newest_of(stage, 10, "advantages_std", "frac_reward_zero_std")
    return None if flat.mean > 0.9 or spread.mean <= 0 else spread.mean / (1 - flat.mean) ** 0.5


def _holds(stage: Stage) -> Seen | None:
    [loss, kl], size = newest_of(stage, 10, "loss_kl", "kl"), need(_advantages(stage))
    if kl.mean <= 0 or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    beta = loss.mean / kl.mean
    if beta <= 0 or size / beta > 0.1:
        return None
    return saw("", [loss, kl], beta=beta, size=size, balance=size / beta)


def _drowned(stage: Stage) -> Seen | None:
    size = need(_advantages(stage))
    terms = [term for name in ("loss_sup", "loss_cons", "loss_l2") if (term := stage.last(name, 10)) is not None]
    largest = need(max(terms, key=lambda term: term.mean, default=None))
    if stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    if largest.mean >= 20.0 * size:
        return saw("drowned", [largest], largest=largest, size=size)
    # A supervised loss that fell to a small part of what it was, beside a reward that stands still and is evaluated no
    # higher: its targets do not earn, and the weights went after them.
    earned, start, last = need(stage.ends("reward")), need(first_loss(stage, 5)), need(last_loss(stage, 10))
    if earned[1].above(earned[0]) or not evaluations_stay(stage) or not 0 < last.mean < 0.25 * start.mean:
        return None
    return saw("learnt_alone", [start, last, *earned], start=start, last=last, earned=earned)


def _all_truncated(stage: Stage) -> Seen | None:
    [cut] = newest_of(stage, WINDOW, "completions/clipped_ratio")
    if cut.mean < 0.9:
        return None
    start, lengths = stage.first("completions/clipped_ratio", 5), _lengths(stage)
    # The limit hides what grows beyond it.
    if start is None or (start.mean > 0.5 and not has_grown(*lengths)):
        return saw("room", [cut], cut=cut)
    grown = f", and answers have grown from {lengths[0]} to {lengths[1]} decisions" if all(lengths) else ""
    return saw("grown", [start, cut], start=start, cut=cut, grown=grown)


def _lengths(stage: Stage) -> tuple[Series | None, Series | None]:
    return stage.first("completions/mean_length", 5), stage.last("completions/mean_length")


def _teaches_brevity(stage: Stage) -> Seen | None:
    cut = present(stage.first("completions/clipped_ratio", 5), stage.last("completions/clipped_ratio"))
    length = present(*_lengths(stage))
    if len(cut) < 2 or len(length) < 2 or stage.num_steps < 2 * WINDOW:
        return None
    fewer = cut[0].mean >= 0.2 and cut[1].mean <= 0.25 * cut[0].mean
    if not fewer or not length[0].above(length[1]) or missed_gain(stage, 5, 0.25) is None:
        return None
    return saw("", [*cut, *length], cut=cut, length=length)


def _left_out(stage: Stage) -> Seen | None:
    lengths, cut = need(stage.first("completions/mean_length", 5)), stage.first("completions/clipped_ratio", 5)
    evaluated = need(next((seen for seen in stage.evaluated if seen.metric == "eval/sampled/length"), None))
    if evaluated.steps[0] >= lengths.steps[0]:
        return None
    limit = stage.setting("domain.sampling.max_new_tokens")
    # Beyond this share of members that are cut off, it is the length limit that makes them short.
    if cut is not None and cut.mean > 0.2 and isinstance(limit, int) and lengths.mean >= 0.5 * limit:
        return None
    # Answers of several turns are measured with the words of others between them, which nobody trains on.
    if stage.setting("domain.environment") or lengths.mean + 2 * lengths.error >= 0.5 * evaluated.values[0]:
        return None
    return saw("", [lengths, evaluated], lengths=lengths, evaluated=evaluated)


LOOKS = {
    "entropy_collapse": [_collapsed],
    "length_creep": [_length_creeps],
    "reference_elsewhere": [_apart_at_start],
    "divergence_negative": [_below_zero],
    "kl_runaway": [_runs_away],
    "policy_becomes_random": [_random],
    "weight_decay_too_high": [_decays],
    "divergence_holds": [_holds],
    "policy_term_drowned": [_drowned],
    "all_truncated": [_all_truncated],
    "limit_teaches_brevity": [_teaches_brevity],
    "texts_repeat": [
        sees(
            lambda s: s.last.mean >= max(0.4, s.start.mean + 0.25),
            start=first("completions/repetition", 5),
            last=newest("completions/repetition"),
        )
    ],
    "prompts_truncated": [
        sees(
            lambda s: s.cut.mean >= 0.2,
            cut=newest("settings/truncated_prompts", 1),
        )
    ],
    "decisions_left_out": [_left_out],
}
