"""The built-in sampler as an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig


@final
class Builtin:
    """See `groupwise.causal_lm.sampler.sample`."""

    def __init__(self, backbone: Backbone, tokenizer: Any, config: BuiltinEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        settings: SamplingConfig,
        seeds: Sequence[int],
        *,
        requires: Iterable[str] = ("log_prob",),
        continue_with: sampler.Continue | None = None,
        progress: sampler.Progress | None = None,
    ) -> sampler.Completions:
        return sampler.sample(
            self.backbone,
            prompts,
            group_size,
            settings,
            seeds,
            tokenizer=self.tokenizer,
            requires=requires,
            continue_with=continue_with,
            progress=progress,
            max_members=self.config.max_members,
        )
