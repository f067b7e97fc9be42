"""Texts that are cut off, repeat themselves, or are trained on in part."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first, has_grown, need, newest, newest_of, present, sees
from groupwise.diagnosis.rule.movement import unused
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_CAUSES = "Either the reward pays for length, or the policy has collapsed and no longer ends its answers"
_HOLD = (
    "Look in rollouts/ at the rewards of long answers. A reward of kind soft_overlong or a lower"
    " optimiser.learning_rate stops the growth; a higher domain.sampling.max_new_tokens would only feed it."
)
_ROOM = "Raise domain.sampling.max_new_tokens, or write stop strings that fit the model's format."


def _all_truncated(stage: Stage) -> Seen | None:
    [cut] = newest_of(stage, WINDOW, "completions/clipped_ratio")
    if cut.mean < 0.9:
        return None
    sentence = f"{cut:.0%} of the members of the last {WINDOW} steps were cut off by the length limit."
    start, lengths = stage.first("completions/clipped_ratio", 5), _lengths(stage)
    # The limit hides what grows beyond it.
    if start is None or (start.mean > 0.5 and not has_grown(*lengths)):
        return Seen(sentence, [cut], advice=_ROOM)
    grown = f", and answers have grown from {lengths[0]} to {lengths[1]} decisions" if all(lengths) else ""
    means = f"In the first 5 steps {start:.0%} were cut off{grown}. {_CAUSES}."
    return Seen(sentence, [start, cut], means=means, advice=_HOLD)


def _lengths(stage: Stage) -> tuple[Series | None, Series | None]:
    return stage.first("completions/mean_length", 5), stage.last("completions/mean_length")


def _teaches_brevity(stage: Stage) -> Seen | None:
    cut = present(stage.first("completions/clipped_ratio", 5), stage.last("completions/clipped_ratio"))
    length = present(*_lengths(stage))
    if len(cut) < 2 or len(length) < 2 or stage.num_steps < 2 * WINDOW:
        return None
    fewer = cut[0].mean >= 0.2 and cut[1].mean <= 0.25 * cut[0].mean
    if not fewer or not length[0].above(length[1]) or unused(stage, 5, 0.25) is None:
        return None
    return Seen(
        f"In the first 5 steps {cut[0]:.0%} of the members were cut off by the length limit, and now {cut[1]:.0%} are."
        f" Members have shrunk from {length[0]} to {length[1]} decisions.",
        [*cut, *length],
    )


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
    return Seen(
        f"In the first 5 steps a member had {lengths} decisions to train on. In the evaluation before, a sampled answer"
        f" had {evaluated.values[0]:.3g} tokens.",
        [lengths, evaluated],
    )


RULES = (
    Rule(
        "all_truncated",
        "fault",
        "Why are all answers cut off?",
        "completions/clipped_ratio",
        "at least 90 % of the members are cut off over 20 steps",
        "An answer that is cut off has no end and usually no result: the reward judges a fragment, and the policy"
        " cannot learn to stop.",
        "If answers were cut off from the first step on, raise domain.sampling.max_new_tokens, or write stop strings"
        " that fit the model's format. If answers grew until they met the limit, add a reward of kind soft_overlong,"
        " or lower optimiser.learning_rate.",
        "all answers are truncated",
        [_all_truncated],
        causes=(
            "reward_follows_length learning_rate_too_high length_creep entropy_collapse policy_becomes_random"
            " weight_decay_too_high texts_repeat"
        ),
    ),
    Rule(
        "limit_teaches_brevity",
        "warning",
        "Why do answers get shorter and no better?",
        "completions/clipped_ratio completions/mean_length groups/best reward",
        "after 40 steps: at least 20% of the members of the first 5 steps were cut off, and at most a quarter as many"
        " of the last 20; the mean length has fallen; and the reward has risen by less than a quarter of the distance"
        " from its start to what the best member of a group earned then",
        "Long answers had no room, so only short ones could earn. The policy learns to be brief, perhaps to leave out"
        " the work.",
        "Raise domain.sampling.max_new_tokens until the model that the stage begins with is hardly ever cut off.",
        "the length limit teaches brevity",
        [_teaches_brevity],
        causes="learning_rate_too_high reward_dominates judge_disagrees weight_decay_too_high",
    ),
    Rule(
        "texts_repeat",
        "warning",
        "Why does my model say the same again and again?",
        "completions/repetition",
        "over 20 steps at least 40% of a text's three-word phrases occur earlier in the same text, and this share is"
        " 25 percentage points above that of the first 5 steps",
        "Texts have become repetitive: the policy has collapsed, or the reward pays for what repetition supplies.",
        "Look at the end of long texts in rollouts/. If repetition earns, mend the reward. Otherwise lower"
        " optimiser.learning_rate or set divergence.beta above 0.",
        "texts repeat themselves",
        [
            sees(
                "{last:.0%} of the three-word phrases occurred earlier in the same text; in the first 5 steps"
                " {start:.0%} did.",
                lambda s: s.last.mean >= max(0.4, s.start.mean + 0.25),
                start=first("completions/repetition", 5),
                last=newest("completions/repetition"),
            ),
        ],
        causes=(
            "prompts_truncated reward_follows_length learning_rate_too_high weight_decay_too_high judge_disagrees"
            " judge_falls reward_dominates"
        ),
    ),
    Rule(
        "prompts_truncated",
        "warning",
        "Does the policy see the whole question?",
        "settings/truncated_prompts",
        "at least 20% of the training prompts are cut (`domain.overlong = 'truncate'`)",
        "The policy reads only the end of a prompt that is cut. What stood before is lost, usually the instructions.",
        "Raise domain.max_prompt_tokens. If the model's context is too short, lower domain.sampling.max_new_tokens."
        " domain.overlong = 'drop' leaves such prompts out.",
        "prompts are cut",
        [
            sees(
                "{cut:.0%} of the training prompts are too long, and were cut on the left.",
                lambda s: s.cut.mean >= 0.2,
                cut=newest("settings/truncated_prompts", 1),
            ),
        ],
    ),
    Rule(
        "decisions_left_out",
        "warning",
        "Is the whole answer trained on?",
        "completions/mean_length completions/clipped_ratio eval/NAME",
        "in the first 5 steps members have less than 0.5 of the decisions that sampled answers had in the evaluation"
        " before, and the run has no environment. The rule is silent if more than 0.2 of the members were cut off at a"
        " length limit of at most 2 times their length",
        "A mask leaves out most of what the policy writes. Tokens before or after some mark never become more or less"
        " probable, though the reward judges them.",
        "Train on the whole completion: look at the mask of one member beside its tokens. If evaluated prompts need"
        " longer answers than trained ones, or have another limit (domain.sampling), that alone may be the reason.",
        "most of an answer is not trained on",
        [_left_out],
    ),
)
