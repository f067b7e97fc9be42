"""Steps that see too few members to tell a better answer from luck."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, rewards_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_MEMBERS = 4


def _look(stage: Stage) -> Seen | None:
    size, prompts, flat = (stage.last(name) for name in ("group_size", "num_prompts_drawn", "frac_reward_zero_std"))
    if size is None or prompts is None or size.mean * prompts.mean > _MEMBERS or rewards_rise(stage):
        return None
    sentence = f"A step compares {size.mean:.0f} members of {prompts.mean:.0f} prompts"
    beside = f", and {flat.mean:.0%} of the groups are flat" if flat is not None else ""
    return Seen(f"{sentence}{beside}; the reward has not risen.", [size, prompts, *([flat] if flat else [])])


TOO_FEW_MEMBERS = Rule(
    "too_few_members",
    "warning",
    "Are my batches large enough?",
    ("group_size", "num_prompts_drawn", "frac_reward_zero_std", "reward"),
    f"over {WINDOW} steps at most {_MEMBERS} members a step are compared, and the reward has not risen",
    "A step moves the policy by the luck of a few members: most groups are flat, and the rest is noise.",
    "Raise train.prompts_per_step and train.group_size, to at least 8 members of 8 prompts. If memory is short,"
    " train.micro_batch_members bounds what is computed at once.",
    _look,
    phrase="steps see too few members",
)
