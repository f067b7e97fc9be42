"""Advantages that lean to one side, that praise the worse, or that are too small beside the other terms."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_AGAINST = 0.2
_OTHERS = ("loss_kl", "loss_sup", "loss_cons", "loss_l2")


def _one_sided(stage: Stage) -> Seen | None:
    # Ones and zeros: it counts what was accepted, and has no baseline.
    if stage.setting("objective.advantage.kind") == "accepted":
        return None
    mean, spread = stage.last("advantages_mean"), stage.last("advantages_std")
    if mean is None or spread is None or spread.mean <= 0 or abs(mean.mean) <= 0.5 * spread.mean:
        return None
    side = "better" if mean.mean > 0 else "worse"
    sentence = (
        f"In the last {WINDOW} steps advantages had mean {number(mean.mean)} and spread {number(spread.mean)}: most"
        f" count as {side} than the baseline."
    )
    return Seen(sentence, [mean, spread])


def _turned(stage: Stage) -> Seen | None:
    agreement = stage.last("advantages/agreement")
    if agreement is None or agreement.mean + 2 * agreement.error >= -_AGAINST:
        return None
    return Seen(
        f"In the last {WINDOW} steps the correlation of rewards and advantages inside groups was"
        f" {number(agreement.mean)}.",
        [agreement],
    )


def _scale(stage: Stage) -> Seen | None:
    spread, flat = stage.last("advantages_std"), stage.last("frac_reward_zero_std")
    if spread is None or flat is None or flat.mean > 0.9:
        return None
    # Flat groups have advantage 0; the others' spread is what counts.
    size = spread.mean / (1 - flat.mean) ** 0.5
    other_terms = [term for name in _OTHERS if (term := stage.last(name)) is not None and term.mean != 0]
    if size > 10:
        return Seen(f"Advantages of groups that differ have a spread of {number(size)}.", [spread])
    if size < 0.05 and other_terms:
        beside = ", ".join(f"{term.metric} {number(term.mean)}" for term in other_terms)
        return Seen(
            f"Advantages of groups that differ have a spread of {number(size)}, beside other terms of the loss"
            f" ({beside}).",
            [spread, *other_terms],
        )
    return None


ADVANTAGE_ONE_SIDED = Rule(
    "advantage_one_sided",
    "warning",
    "Are my advantages balanced?",
    ("advantages_mean", "advantages_std"),
    f"over {WINDOW} steps the mean of the advantages is more than half their standard deviation away from 0. The rule"
    " is silent with advantage.kind = accepted, which has no baseline",
    "The baseline is not the mean of the group. All members of an easy prompt become more probable and all of a"
    " hard one less, instead of being compared with each other.",
    "Choose a baseline of the group: advantage.kind = z_score, centred or batch_std; with running_std, set"
    " baseline = group. A constant baseline needs rewards that lie around it.",
    _one_sided,
    phrase="the advantages have one sign",
)
ADVANTAGE_TURNED = Rule(
    "advantage_turned",
    "fault",
    "Is the sign of my advantages right?",
    ("advantages/agreement",),
    f"over {WINDOW} steps the correlation inside groups of the advantages with the rewards that they compare is"
    f" below -{_AGAINST} by two standard errors",
    "Members that earned more have the lower advantage, so every update makes the worse ones more probable. The"
    " baseline was subtracted the wrong way round, or advantages stand in another order than the rewards.",
    "In the advantage's code, subtract the mean from the reward, not the reward from the mean. To pay for what"
    " should fall, turn the sign of the reward (domain.rewards.NAME.weight = -1).",
    _turned,
    phrase="members that earn more have the lower advantage",
)
ADVANTAGE_SCALE = Rule(
    "advantage_scale",
    "warning",
    "Are my advantages of the right size?",
    ("advantages_std", "frac_reward_zero_std", *_OTHERS),
    f"over {WINDOW} steps the advantages of groups that differ have a spread above 10, or below 0.05 beside another"
    " active term of the loss",
    "The policy term is on another scale than the other terms of the loss. Large advantages drown the other"
    " terms, and small advantages are drowned by them.",
    "Set advantage.kind = z_score or batch_std, advantage.clip or domain.rewards.NAME.weight, or bring"
    " divergence.beta and auxiliary.NAME to the scale of the advantages.",
    _scale,
    phrase="the advantages are on another scale than 1",
    follows=("policy_term_drowned", "reward_is_noise"),
)
