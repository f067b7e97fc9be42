"""The language model to train: one from a folder, or a small one with fresh weights."""

from __future__ import annotations

import re
from typing import Annotated, Literal, final

from pydantic import AfterValidator, Field

from groupwise.causal_lm.config import CausalLMConfig, LoraConfig, SmallModelConfig
from groupwise.config import Config, InModule
from groupwise.config.numbers import Positive, Seed


@final
class Pretrained(Config):
    """Any causal language model of transformers, whole or with LoRA; of a folder or a hub id safetensors only.

    Args:
        path: a local folder, a hub id, a `.gguf` file, or `package:NAME`, an installed package that carries one.
        dtype: dtype of the weights; `auto` takes the file's.
        attention: attention implementation of transformers; unset takes its default.
        dropout: `off` trains without the dropout that the folder's configuration names (an adapter's own stays), so
            that the policy rescored is the one that sampled; `kept` leaves it on while training.
        lora: an adapter to train instead of the whole model; the reference policy is a copy of the adapter.
        revision: a branch, tag or commit of a hub id.

    Example:
        >>> Pretrained(path="models/small").loading.path
        'models/small'
    """

    kind: Literal["pretrained"] = "pretrained"
    path: Annotated[str, Field(min_length=1)]
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    dropout: Literal["off", "kept"] = "off"
    lora: LoraConfig | None = None
    revision: str | None = None

    @property
    def loading(self) -> CausalLMConfig:
        """The settings by which the folder is loaded."""
        return CausalLMConfig(**self.model_dump(exclude={"kind", "lora"}), lora=self.lora)


@final
class Scratch(Config):
    """A small Qwen3-shaped model with fresh weights and a tokenizer made for the data; it needs a supervised stage
    before it can earn a reward.

    Args:
        tokenizer: `words` takes what stands between spaces (and loses the spaces), `pieces` splits off punctuation and
            digits and loses nothing, `characters` takes one at a time.
        shape: sizes of the model, its width and number of layers among them.
        dtype: dtype of the weights.
        seed: of the weights; unset takes the run's.

    Example:
        >>> Scratch(shape=SmallModelConfig(hidden_size=32)).shape.num_layers
        2
    """

    kind: Literal["scratch"] = "scratch"
    tokenizer: Literal["words", "pieces", "characters"] = "words"
    shape: SmallModelConfig = SmallModelConfig()
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    seed: Seed | None = None


@final
class ModelObjects(Config):
    """A causal language model of transformers and its tokenizer that a program holds; the model is trained as it is, in
    place. `groupwise.train((model, tokenizer), ...)` writes this.

    Args:
        model: `package.module:name` of the model.
        tokenizer: `package.module:name` of its tokenizer.
        dropout: `off` sets the dropout rates of the model to 0, so that the policy rescored is the one that sampled;
            `kept` leaves them.
        lora: an adapter to train instead of the whole model.

    Example:
        >>> ModelObjects(model="package.module:model", tokenizer="package.module:tokenizer").dropout
        'off'
    """

    kind: Literal["objects"] = "objects"
    model: InModule
    tokenizer: InModule
    dropout: Literal["off", "kept"] = "off"
    lora: LoraConfig | None = None


def _address(address: str) -> str:
    if not re.match(r"https?://[^/\s]", address):
        place = address.rpartition("/")[2] or "HOST:PORT"
        raise ValueError(f"must begin with http:// or https://; write http://{place}")
    return address


@final
class Tinker(Config):
    """A LoRA adapter on a server that speaks the Tinker API; the server samples, scores, differentiates and steps.

    Args:
        address: of the server, for example `http://127.0.0.1:8000`.
        base_model: name of the base model, as the server knows it.
        tokenizer: a local folder or a hub id of its tokenizer; unset takes `base_model`.
        state: path of a state on the server, with which the adapter begins; unset begins as the base model.
        rank: of the adapter.
        seed: of the adapter's initial weights; unset takes the run's.
        max_positions: longest prompt and completion together, tokens; unset states no limit.
        length_multiple: sequences are padded to a multiple of this, so that a compiling server compiles seldom.
        fewest_rows: a request is padded to this many sequences times a power of two, for the same reason.
        timeout_seconds: deadline of a call; the first one of each shape may compile.

    Example:
        >>> Tinker(address="http://127.0.0.1:8000", base_model="models/small").rank
        8
    """

    kind: Literal["tinker"] = "tinker"
    address: Annotated[str, AfterValidator(_address)]
    base_model: Annotated[str, Field(min_length=1)]
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    state: Annotated[str, Field(min_length=1)] | None = None
    rank: Positive = 8
    seed: Seed | None = None
    max_positions: Positive | None = None
    length_multiple: Positive = 16
    fewest_rows: Positive = 8
    timeout_seconds: Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)] = 600.0


ModelConfig = Annotated[Pretrained | Scratch | ModelObjects | Tinker, Field(discriminator="kind")]
"""Any language model, told apart by `kind`."""
