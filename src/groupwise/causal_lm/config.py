"""How a causal language model is loaded and how it is sampled. Imports neither torch nor transformers."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config

Positive = Annotated[int, Field(ge=1)]


@final
class LoraConfig(Config):
    """A low-rank adapter: ``W + (alpha / r) B A`` on the named layers; the reference policy is the adapter switched off.

    Args:
        r: rank of the update.
        alpha: its scale, divided by `r`.
        dropout: dropout on the adapter's input while training.
        target_modules: names of the layers, or ``"all-linear"`` for every linear layer but the head.

    Example:
        >>> LoraConfig(r=4).alpha
        16.0
    """

    r: Positive = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


@final
class CausalLMConfig(Config):
    """Which causal language model is loaded, and how.

    Args:
        path: a local folder or a hub id.
        dtype: dtype of the weights; ``auto`` takes the file's.
        attention: attention implementation of transformers; ``None`` takes its default.
        gradient_checkpointing: recompute activations in the backward pass.
        lora: an adapter to train instead of the whole model.
        revision: a branch, tag or commit of a hub id.

    Example:
        >>> CausalLMConfig(path="models/small").dtype
        'auto'
    """

    path: str
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None
    revision: str | None = None


@final
class SamplingConfig(Config):
    """How completions are drawn.

    Args:
        max_new_tokens: limit on the tokens of a member, those of an environment included.
        temperature: divides the logits; log-probs are those at this temperature.
        top_p: keep the smallest set of most likely tokens whose mass reaches this; 1 keeps all.
        top_k: keep this many most likely tokens; 0 keeps all.
        greedy: take the most likely token; log-probs are still those at `temperature`.
        stop: texts that end a turn when they appear in it.
        max_turn_tokens: limit on the tokens sampled in one turn of a conversation.

    Example:
        >>> SamplingConfig(top_k=20).truncates
        True
    """

    max_new_tokens: Positive = 256
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    greedy: bool = False
    stop: tuple[str, ...] = ()
    max_turn_tokens: Positive | None = None

    @model_validator(mode="after")
    def _stops_are_texts(self) -> SamplingConfig:
        if any(not text for text in self.stop):
            raise ValueError("stop contains an empty text, which would end every turn at once; leave it out")
        return self

    @property
    def truncates(self) -> bool:
        """Whether the sampler draws from less than the full distribution."""
        return not self.greedy and (self.top_p < 1 or self.top_k > 0)
