"""The built-in sampler as an engine."""

from __future__ import annotations

from typing import Any, final

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine
from groupwise.causal_lm.engine.base import Engine, GroupBatch


@final
class Builtin(Engine):
    """An engine in this process; see `groupwise.causal_lm.sampler.sample`."""

    def __init__(self, backbone: Backbone, tokenizer: Any, config: BuiltinEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config

    def answer(self, batch: GroupBatch) -> sampler.Completions:
        """Samples the groups, `max_members` at once."""
        return sampler.sample(
            self.backbone,
            batch.prompts,
            batch.group_size,
            batch.settings,
            batch.seeds,
            tokenizer=self.tokenizer,
            requires=batch.requires,
            continue_with=batch.continue_with,
            progress=batch.progress,
            max_members=self.config.max_members,
        )
