"""The engines that sample: the built-in sampler, ``model.generate``, or a vLLM server, behind one interface."""

from __future__ import annotations

from typing import Any

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import EngineConfig, VllmEngine
from groupwise.causal_lm.engine.local import open_local
from groupwise.causal_lm.sampler import Engine

__all__ = ["Engine", "open_engine"]


def open_engine(config: EngineConfig, backbone: Backbone, tokenizer: Any) -> Engine:
    """Opens the engine that a configuration names, over this model.

    Args:
        config: which one.
        backbone: the model.
        tokenizer: its tokenizer.

    Raises:
        ConfigError: the engine cannot sample from this family of models.

    Example:
        >>> from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig, SmallModelConfig
        >>> from groupwise.causal_lm.sampler import GroupBatch
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> engine = open_engine(BuiltinEngine(max_members=2), backbone, None)
        >>> len(engine.sample(GroupBatch([[3, 4]], 4, SamplingConfig(max_new_tokens=2), seeds=range(4))).tokens)
        4
    """
    if not isinstance(config, VllmEngine):
        return open_local(config, backbone, tokenizer)
    from groupwise.causal_lm.engine.vllm import Vllm

    return Vllm(backbone, tokenizer, config)
