"""The choice of the engine that a configuration names."""

from __future__ import annotations

from typing import Any

import torch

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.cache import keeps_keys, prompt_cache
from groupwise.causal_lm.config import BuiltinEngine, EngineConfig, TransformersEngine, VllmEngine
from groupwise.causal_lm.engine.agreement import why_not_sampled
from groupwise.causal_lm.engine.base import Engine
from groupwise.causal_lm.engine.builtin import Builtin
from groupwise.causal_lm.engine.generate import Generate
from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory


def open_engine(config: EngineConfig, backbone: Backbone, tokenizer: Any) -> Engine:
    """Opens the engine that a configuration names, over this model.

    Args:
        config: which one.
        backbone: the model.
        tokenizer: its tokenizer.

    Raises:
        ConfigError: the engine cannot sample from this family of models.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> from groupwise.causal_lm.config import SamplingConfig
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> engine = open_engine(BuiltinEngine(max_members=2), backbone, None)
        >>> len(engine.sample([[3, 4]], 4, SamplingConfig(max_new_tokens=2), seeds=range(4)).tokens)
        4
    """
    if not isinstance(config, VllmEngine) and not continues_from_keys(backbone.tried):
        if not _leaves_padding_out(backbone.tried):
            raise ConfigError(
                f"{_name(backbone)} reads padding as text: prompts of different lengths cannot be sampled together, so"
                " this family is not supported; train another model"
            )
        if isinstance(config, BuiltinEngine):
            raise ConfigError(
                f"{_name(backbone)} keeps a recurrent state from token to token, and the built-in sampler goes on from"
                ' keys and values alone; write domain.engine.kind = "transformers"'
            )
    if isinstance(config, BuiltinEngine):
        if (reason := why_not_sampled(backbone.tried)) is not None:
            raise ConfigError(
                f"the built-in sampler does not serve {_name(backbone)} ({reason}); write domain.engine.kind ="
                ' "transformers"'
            )
        return Builtin(backbone, tokenizer, config)
    if isinstance(config, TransformersEngine):
        return Generate(backbone, tokenizer, config)
    from groupwise.causal_lm.engine.vllm import Vllm

    return Vllm(backbone, tokenizer, config)


def _name(backbone: Backbone) -> str:
    model: Any = backbone.model
    return type(model.get_base_model() if hasattr(model, "peft_config") else model).__name__


def continues_from_keys(backbone: Backbone) -> bool:
    """Tests that the model goes on from the keys and values of its cache. Two tokens are forwarded, and their cache is
    looked at.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> continues_from_keys(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
        True
    """
    cache = prompt_cache(backbone.config)
    with backbone.evaluating():
        try:
            backbone.forward(torch.tensor([[0, 1]], device=backbone.device), past_key_values=cache, use_cache=True)
        except Exception as error:  # a family with another cache raises errors of any kind
            if is_out_of_memory(error):
                raise
            return False
    return keeps_keys(cache)


def _leaves_padding_out(backbone: Backbone) -> bool:
    """Tests that the states of a text are the same with padding before it."""
    ids = torch.arange(3, device=backbone.device).unsqueeze(0)
    padded, mask = torch.cat([ids[:, :2], ids], 1), torch.tensor([[0, 0, 1, 1, 1]], device=backbone.device)
    with backbone.evaluating():
        states, padded_states = (
            backbone.hidden(ids, use_cache=False)[0],
            backbone.hidden(padded, attention_mask=mask, use_cache=False)[0, 2:],
        )
    tolerance = 5e-2 if states.dtype.itemsize < 4 else 1e-3
    return bool((states - padded_states).abs().max() <= tolerance * states.abs().max())
