"""The configuration of a causal language model and of sampling from it. Imports neither torch nor transformers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, OpenKinds, check_class
from groupwise.config.errors import Count, Length, Positive, Width

if TYPE_CHECKING:
    from groupwise.causal_lm.backbone import Backbone
    from groupwise.causal_lm.sampler import Engine


@final
class LoraConfig(Config):
    """A low-rank adapter: ``W + (alpha / r) B A`` on the named layers; the reference policy is the adapter switched
    off.

    Args:
        r: rank of the update.
        alpha: its scale, divided by `r`.
        dropout: dropout on the adapter's input while training.
        target_modules: names of the layers, or ``"all-linear"`` for every linear layer but the head.

    Example:
        >>> LoraConfig(r=4).alpha
        16.0
    """

    r: Width = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class CausalLMConfig(Config):
    """The causal language model to load: its folder, dtype, attention and adapter.

    Args:
        path: a local folder, a hub id, a `.gguf` file, or `package:NAME`, an installed package that carries one.
        dtype: dtype of the weights; ``auto`` takes the file's.
        attention: attention implementation of transformers; ``None`` takes its default.
        dropout: ``off`` trains without the dropout that the folder's configuration names (an adapter's own stays):
            under it, the policy that is rescored is not the one that sampled, and a gradient depends on how members are
            cut into micro-batches. ``kept`` leaves it on while training.
        lora: an adapter to train instead of the whole model.
        revision: a branch, tag or commit of a hub id.

    Example:
        >>> CausalLMConfig(path="models/small").dtype
        'auto'
    """

    path: Annotated[str, Field(min_length=1)]
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    dropout: Literal["off", "kept"] = "off"
    lora: LoraConfig | None = None
    revision: str | None = None


@final
class SamplingConfig(Config):
    """The settings of a draw: temperature, truncation, limits and stop texts.

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
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    greedy: bool = False
    stop: tuple[str, ...] = ()
    max_turn_tokens: Positive | None = None

    @model_validator(mode="after")
    def _stops_are_texts(self) -> SamplingConfig:
        if any(not text for text in self.stop):
            raise ValueError("stop contains an empty text, which would end every turn at once; leave it out")
        return self

    @cached_property
    def truncates(self) -> bool:
        """True where the sampler draws from less than the full distribution."""
        return not self.greedy and (self.top_p < 1 or self.top_k > 0)


@final
class SmallModelConfig(Config):
    """The shape of a Qwen3-style model that starts from random weights.

    Args:
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated feed-forward layer.
        num_layers: decoder layers.
        num_heads: query heads.
        num_key_value_heads: key and value heads; divides `num_heads`.
        head_dim: width of a head; ``hidden_size / num_heads`` where omitted.
        max_positions: longest sequence.
        tied: the head shares the embedding's weight.
        rope_theta: base of the rotary positions.

    Example:
        >>> SmallModelConfig(hidden_size=64).num_layers
        2
    """

    hidden_size: Width = 96
    intermediate_size: Width = 256
    num_layers: Length = 2
    num_heads: Width = 4
    num_key_value_heads: Width = 2
    head_dim: Width | None = None
    max_positions: Positive = 512
    tied: bool = True
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0

    @model_validator(mode="after")
    def _heads_divide(self) -> SmallModelConfig:
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads = {self.num_key_value_heads} does not divide num_heads = {self.num_heads}; write"
                " a divisor"
            )
        if self.head_dim is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size = {self.hidden_size} is not a multiple of num_heads = {self.num_heads}; write head_dim as"
                " well"
            )
        if (self.head_dim or self.hidden_size // self.num_heads) % 2:
            raise ValueError("head_dim must be even: rotary positions turn pairs of numbers")
        return self


class EngineConfig(Config):
    """What samples from a language model. A package adds a kind by an entry point of `groupwise.engines` that names a
    subclass.
    """

    has_servers: ClassVar[bool] = False
    """Whether servers sample, which a folder that was exported is asked without."""

    def open(self, backbone: Backbone, tokenizer: Any) -> Engine:
        """Opens the engine over a model.

        Args:
            backbone: the model.
            tokenizer: its tokenizer.

        Raises:
            ConfigError: the engine cannot sample from this family of models.
        """
        raise NotImplementedError

    @property
    def sends_weights(self) -> bool:
        """Whether the run sends the weights to servers."""
        return False

    @property
    def memory_share(self) -> float:
        """The share of a GPU's memory that a server started by the run takes; 0 where the run starts none."""
        return 0.0

    @property
    def server_sleeps(self) -> bool:
        """Whether servers give the GPU back between two batches."""
        return False


@final
class BuiltinEngine(EngineConfig):
    """Sampling in this process by `groupwise.causal_lm.sampler`: one prefill a prompt, log-probs kept, seeds per
    member.

    Args:
        max_members: sample at most this many members at once, whole groups; all of a batch where omitted.
    """

    kind: Literal["builtin"] = "builtin"
    max_members: Positive | None = None

    def open(self, backbone: Backbone, tokenizer: Any) -> Engine:
        """Opens the engine over a model."""
        from groupwise.causal_lm.engines import open_local

        return open_local(self, backbone, tokenizer)


@final
class TransformersEngine(EngineConfig):
    """Sampling in this process by ``model.generate``: for model families the built-in sampler cannot serve.

    Its random numbers belong to the batch, not to the member: the same batch repeats, but a member's text depends on
    its neighbours.

    Args:
        max_members: sample at most this many members at once, whole groups; all of a batch where omitted.
    """

    kind: Literal["transformers"] = "transformers"
    max_members: Positive | None = None

    def open(self, backbone: Backbone, tokenizer: Any) -> Engine:
        """Opens the engine over a model."""
        from groupwise.causal_lm.engines import open_local

        return open_local(self, backbone, tokenizer)


def _engine_config(kind: str, loaded: Any) -> type[EngineConfig]:
    return check_class(loaded, EngineConfig, f"engine.kind = {kind!r}")


ENGINES = OpenKinds("groupwise.engines", _engine_config)
"""The entry points: `kind = "package.module:Class"`, an `EngineConfig`."""
AnyEngine = Annotated[EngineConfig, ENGINES]
"""The configuration of any engine, distinguished by `kind`."""
