"""Every rule: its words in `rules.toml`, and its looks in the tables of the files in this folder."""

import tomllib
from importlib import resources

from groupwise_look.diagnosis.rule import data, policy, progress, rewards, steps
from groupwise_look.diagnosis.rule.base import Rule, Seen

LOOKS = {**data.LOOKS, **progress.LOOKS, **rewards.LOOKS, **policy.LOOKS, **steps.LOOKS}
_ENDED = {
    # Later epochs only hide that prompts came back too early.
    "prompts_come_back": lambda stage: False,
    # Unbounded updates may have made all groups flat, and a stage without updates cannot show the ratio.
    "ratio_always_one": lambda stage: False,
    "reward_flat": progress.is_no_longer_flat,
}
_WORDS = tomllib.loads((resources.files(__name__) / "rules.toml").read_text(encoding="utf-8"))

RULES: tuple[Rule, ...] = tuple(
    Rule(name, LOOKS[name], ended=_ENDED.get(name), **words) for name, words in _WORDS.items()
)

__all__ = ["RULES", "Rule", "Seen"]
