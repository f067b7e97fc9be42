"""Groups that compare nothing: rewards that are constant, random or not of the answer, and a loss of zero."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, has_grown, need, newest_of, number, present
from groupwise.diagnosis.rule.rising import judged
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


def _loss_is_zero(stage: Stage) -> Seen | None:
    loss, norm, spread = first_of(stage, 5, "loss_pg", "grad_norm", "advantages_std")
    size = max(map(abs, loss.values))
    if min(norm.values) <= 0 or spread.mean <= 0 or size > 1e-3 * spread.mean:
        return None
    return Seen(
        f"The policy loss of the first 5 steps is {number(size)} at most in size, with a gradient of norm {norm}.",
        [loss, norm],
    )


def _constant(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    constants = {name: means for name in names if (means := _only_value(stage, name))}
    if not constants:
        return None
    said = " and ".join(f"{name} has given every member {means[0]}" for name, means in constants.items())
    sentence, evidence = (
        f"Reward {said} since the stage began.",
        [mean for means in constants.values() for mean in means],
    )
    if len(constants) == len(names):
        return Seen(sentence, evidence)
    return Seen(sentence, evidence, "note", "This reward compares nothing: the other rewards decide.")


def _only_value(stage: Stage, name: str) -> list[Series]:
    """Returns the first and the newest means of a reward where no member ever earned another value."""
    means, spreads = (
        present(stage.first(f"rewards/{name}/{what}"), stage.last(f"rewards/{name}/{what}")) for what in ("mean", "std")
    )
    if len(means) < 2 or len(spreads) < 2:
        return []
    values = [*means[0].values, *means[1].values]
    near = 1e-9 * max(1.0, max(map(abs, values)))
    varies = max(values) - min(values) > near or max(*spreads[0].values, *spreads[1].values) > near
    return [] if varies else means


def _ignores_answer(stage: Stage) -> Seen | None:
    flat, reward = first_of(stage, 10, "frac_reward_zero_std", "reward")
    [last_flat] = newest_of(stage, 10, "frac_reward_zero_std")
    # Too easy and too hard prompts earn all or nothing.
    at_the_bounds = present(*(stage.first(name, 10) for name in ("groups/all_right", "groups/all_wrong")))
    if min(*flat.values, *last_flat.values) < 0.99 or sum(share.mean for share in at_the_bounds) > 0.5:
        return None
    spread, distinct, surprisal = (
        stage.first(name, 10) for name in ("groups/mean_std", "completions/distinct", "surprisal")
    )
    between_steps = max(reward.values) - min(reward.values)
    if max(between_steps, spread.mean if spread else 0.0) <= max(map(abs, reward.values)) * 1e-6:
        return None
    if distinct and distinct.mean < 0.5 and (surprisal is None or surprisal.mean < 0.1):
        return None
    seen = f", although {distinct:.0%} of the members are distinct" if distinct else ""
    return Seen(
        f"From the first step on all members of every group earned the same{seen}, and rewards differ between prompts"
        f" or steps ({number(min(reward.values))} to {number(max(reward.values))} in the mean).",
        [flat, reward, *present(spread, distinct)],
    )


_PLACES = {
    "groups/place_correlation": "A member's reward and its place in the group",
    "batch/place_correlation": "A group's mean reward and its place in the batch of its process",
}


def _follows_place(stage: Stage) -> Seen | None:
    # Adaptive sampling draws prompts of middling difficulty first.
    for metric in list(_PLACES)[: 1 if stage.setting("train.adaptive_sampling") else 2]:
        start, last = stage.first(metric), stage.last(metric)
        if start and last and _correlated(start) and _correlated(last) and start.mean * last.mean >= 0:
            return Seen(
                f"{_PLACES[metric]} are correlated: {last} over the last {WINDOW} steps, {start} over the first.",
                [start, last],
            )
    return None


def _correlated(series: Series) -> bool:
    # With two groups a step, 19 of 20 correlations have one sign by luck once in 25,000 windows of six standard errors.
    return abs(series.mean) >= 0.25 and abs(series.mean) > 6.0 * series.error


def _is_noise(stage: Stage) -> Seen | None:
    [start], [noise] = first_of(stage, WINDOW, "groups/copies_noise"), newest_of(stage, WINDOW, "groups/copies_noise")
    if noise.mean < 0.5:
        return None
    sentence = (
        f"Equal answers to one prompt earned different rewards. Over {WINDOW} steps the mean squared difference of two"
        f" equal members' rewards was {noise:.0%} of that of any two members of their group."
    )
    if start.mean < 0.5:
        means = "The share was smaller at first. Members now differ little, so mostly noise is left."
        return Seen(sentence, [start, noise], "note", means)
    return Seen(sentence, [noise])


_LOOK = (
    "Look at rollouts/ and at completions/mean_length before you use this model. A reward with role = 'judge' measures"
    " the goal and is not trained on. To go on from here, take harder prompts or a finer reward."
)
_TRY_AGAIN = (
    "Where the policy is wrong, it must go on trying other answers. Make the supervised stage before this one longer,"
    " lower optimiser.learning_rate, set entropy = 0.001 or more, or take a higher domain.sampling.temperature or a"
    " larger train.group_size."
)


def _all_flat(stage: Stage) -> Seen | None:
    flat, reward = newest_of(stage, WINDOW, "frac_reward_zero_std", "reward")
    start, wrong = need(stage.first("reward")), stage.last("groups/all_wrong")
    if flat.mean < 0.95:
        return None
    sentence = f"{flat:.0%} of the groups of the last {WINDOW} steps had equal rewards (mean reward {reward})."
    if not reward.above(start):
        return Seen(sentence, [flat, reward])
    risen = f"The reward has risen from {start}, and now all members of a group earn the same"
    if wrong is not None and wrong.mean > 0.1:
        means = (
            f"{risen}. In {wrong:.0%} of the groups they earn nothing: there the policy is sure and wrong, and since"
            " all members are alike, nothing corrects it."
        )
        return Seen(sentence, [flat, wrong, reward], "warning", means, _TRY_AGAIN)
    if _answers_grew(stage):
        means = f"{risen}, while answers grew. Perhaps the policy has learnt to be long."
        return Seen(sentence, [flat, reward], "warning", means, _LOOK)
    if not judged(stage):
        return Seen(sentence, [flat, reward], "note", f"{risen}. No judge shows that they earn it as you meant.", _LOOK)
    means = f"{risen}, and no judge has fallen. The policy has learnt what the prompts could teach."
    return Seen(sentence, [flat, reward], "note", means, "Stop here, or go on with harder prompts or a finer reward.")


def _answers_grew(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began, or the length limit now cuts off what it
    did not cut off then.
    """
    lengths, cut = stage.ends("completions/mean_length"), stage.ends("completions/clipped_ratio")
    longer = lengths is not None and has_grown(*lengths)
    return longer or (cut is not None and cut[1].mean >= 0.5 and cut[1].above(cut[0]))


RULES = (
    Rule(
        "loss_zero",
        "note",
        "Why is my loss zero at the start?",
        "loss_pg grad_norm advantages_std",
        "the policy loss of each of the first 5 steps is below a thousandth of the advantages' spread, and the"
        " gradient is not zero",
        "A loss of zero is right here. Before the first update every ratio is 1, so the loss is minus the mean"
        " advantage, and the advantages of a group sum to zero. The gradient is not zero, since each log-prob is"
        " multiplied by the advantage of its own member. The value of the loss says nothing about learning: watch the"
        " reward and the score of the evaluations.",
        "Nothing.",
        "the loss is zero",
        [_loss_is_zero],
    ),
    Rule(
        "reward_constant",
        "fault",
        "Why does every member earn the same?",
        "rewards/NAME/mean rewards/NAME/std",
        "in the first 20 and in the last 20 steps of a stage, a reward gave every member the same value. This is only"
        " a note if another weighted reward varies",
        "A reward that never varies compares nothing. Either its function reads the wrong column or looks for a form"
        " that no answer has, or every prompt is too hard or too easy for this policy.",
        "Run `groupwise check`: it scores one group and shows what the function is given and what it returns. Then"
        " mend the function, its columns, the form that the prompt asks for, or the prompts.",
        "every member earns the same reward",
        [_constant],
        causes="prompts_truncated reward_missing all_truncated samples_alike weight_decay_too_high",
    ),
    Rule(
        "reward_ignores_answer",
        "fault",
        "Does my reward look at the answer at all?",
        "frac_reward_zero_std reward groups/mean_std groups/all_right groups/all_wrong completions/distinct surprisal",
        "in the first and in the last 10 steps all groups are flat, but rewards differ between prompts or steps,"
        " members differ, and less than half of the groups earn everything or nothing",
        "The reward depends on the prompt or the batch, not on what the member did. Its function reads a column of the"
        " data in place of the completion, or gives all members one number.",
        "Print what the function is given and what it returns for the members of one group (`groupwise check`). Let it"
        " read the completion, and return one number for each.",
        "the reward does not depend on what a member did",
        [_ignores_answer],
        causes="samples_alike",
    ),
    Rule(
        "reward_follows_place",
        "warning",
        "Does my reward depend on the order in which members are scored?",
        "groups/place_correlation batch/place_correlation",
        "the correlation of reward and place is at least 0.25 in size and 6 standard errors from 0, both over the"
        " first and over the last 20 steps, with the same sign; with `train.adaptive_sampling` only places in the"
        " group are judged",
        "Prompts come in random order and the members of a group are drawn alike, so a reward of prompt and answer"
        " cannot depend on places. Something else is in the reward: an index, a counter, a time, or a cache that"
        " fills.",
        "Score one member twice, at the start and at the end of a batch (`groupwise.testing.check_reward` does this)."
        " Remove from the reward function what counts or remembers.",
        "the reward follows the place in the batch",
        [_follows_place],
        causes="prompts_come_back",
    ),
    Rule(
        "reward_is_noise",
        "warning",
        "Is my reward random?",
        "groups/copies_noise",
        "over 20 steps in which groups held equal members, the mean squared difference of two equal members' rewards"
        " was at least 0.5 of that of any two members. This is only a note if it was less in the first such steps",
        "The reward is not a function of prompt and answer. It is random, it depends on where or when a member was"
        " scored, it belongs to another member, or a few of its values are outliers. Groups compare this noise.",
        "Score the members of one group twice (`groupwise.testing.check_reward` does this). Return the values in the"
        " order of the members, keep no state between calls, average random values, and bound them.",
        "equal answers earn different rewards",
        [_is_noise],
    ),
    Rule(
        "all_flat",
        "fault",
        "Why does nothing happen? Why is the loss exactly 0?",
        "frac_reward_zero_std reward groups/all_wrong",
        "at least 95 % of the groups are flat over 20 steps; if the reward had risen before, this is a note, or a"
        " warning if answers grew with the reward or more than a tenth of the groups earn nothing",
        "In a flat group all members earn the same, so every advantage is 0 and the group teaches nothing. The mean"
        " reward tells whether the prompts are too hard or too easy.",
        "Take easier or harder prompts, a reward with more levels, a higher domain.sampling.temperature, a larger"
        " train.group_size, or a supervised stage before this one.",
        "all groups are flat",
        [_all_flat],
        causes=(
            "divergence_negative reference_elsewhere advantage_turned prompts_truncated reward_constant"
            " reward_ignores_answer weight_decay_too_high exploration_too_strong reward_follows_length"
            " samples_alike reward_missing all_truncated learning_rate_too_high entropy_collapse"
            " prompts_never_earn"
        ),
    ),
)
