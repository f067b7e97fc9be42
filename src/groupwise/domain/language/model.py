"""Which language model is trained: one from a folder, or a small one made here."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.causal_lm.config import CausalLMConfig, LoraConfig
from groupwise.config import Config

Positive = Annotated[int, Field(ge=1)]


@final
class Pretrained(Config):
    """Any causal language model of transformers, whole or with LoRA; safetensors only.

    Args:
        path: a local folder or a hub id.
        dtype: dtype of the weights; `auto` takes the file's.
        attention: attention implementation of transformers; unset takes its default.
        lora: an adapter to train instead of the whole model; the reference policy is the adapter switched off.
        revision: a branch, tag or commit of a hub id.

    Example:
        >>> Pretrained(path="models/small").loading.path
        'models/small'
    """

    kind: Literal["pretrained"] = "pretrained"
    path: Annotated[str, Field(min_length=1)]
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    lora: LoraConfig | None = None
    revision: str | None = None

    @property
    def loading(self) -> CausalLMConfig:
        """How it is loaded."""
        return CausalLMConfig(path=self.path, dtype=self.dtype, attention=self.attention, lora=self.lora, revision=self.revision)


@final
class Scratch(Config):
    """A small Qwen3-shaped model with fresh weights and a tokenizer made for the data; it needs a supervised stage before it can earn a reward.

    Args:
        tokenizer: `words` takes what stands between spaces (and loses the spaces), `pieces` splits off punctuation and loses nothing, `characters` takes one at a time.
        hidden_size: width.
        num_layers: blocks.
        num_heads: attention heads; they divide `hidden_size`.
        num_key_value_heads: heads of keys and values; they divide `num_heads`.
        intermediate_size: width of the feed-forward layers.
        max_length: longest prompt and completion together, in tokens.
        dtype: dtype of the weights.
        seed: of the weights; unset takes the run's.

    Example:
        >>> Scratch(hidden_size=64, num_heads=3)
        Traceback (most recent call last):
        pydantic_core._pydantic_core.ValidationError: ...
    """

    kind: Literal["scratch"] = "scratch"
    tokenizer: Literal["words", "pieces", "characters"] = "words"
    hidden_size: Positive = 64
    num_layers: Positive = 3
    num_heads: Positive = 4
    num_key_value_heads: Positive = 2
    intermediate_size: Positive = 192
    max_length: Positive = 256
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    seed: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _divides(self) -> Scratch:
        if self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2:
            raise ValueError(f"hidden_size = {self.hidden_size} must be an even multiple of num_heads = {self.num_heads}; write hidden_size = {self.num_heads * 16}")
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(f"num_key_value_heads = {self.num_key_value_heads} must divide num_heads = {self.num_heads}; write num_key_value_heads = 1")
        return self


ModelConfig = Annotated[Pretrained | Scratch, Field(discriminator="kind")]
"""Any language model, told apart by `kind`."""
