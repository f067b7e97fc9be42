"""The interface of an engine, and which one a configuration names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, EngineConfig, SamplingConfig, TransformersEngine
from groupwise.causal_lm.engine.builtin import Builtin
from groupwise.causal_lm.engine.generate import Generate
from groupwise.causal_lm.engine.vllm import Vllm
from groupwise.causal_lm.sampler import Completions, Continue, Progress


class Engine(Protocol):
    """Something that samples groups; arguments and result as in `groupwise.causal_lm.sampler.sample`."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        settings: SamplingConfig,
        seeds: Sequence[int],
        *,
        requires: Iterable[str] = ("log_prob",),
        continue_with: Continue | None = None,
        progress: Progress | None = None,
    ) -> Completions: ...


def open_engine(config: EngineConfig, backbone: Backbone, tokenizer: Any) -> Engine:
    """The engine a configuration names, over this model."""
    if isinstance(config, BuiltinEngine):
        return Builtin(backbone, tokenizer, config)
    if isinstance(config, TransformersEngine):
        return Generate(backbone, tokenizer, config)
    return Vllm(backbone, tokenizer, config)
