"""The sizes of a causal language model that set its cost, read from its `config.json` without loading the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, read_json

_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "vocabulary": ("vocab_size",),
}
_GATED = frozenset(
    (
        "bitnet",
        "cohere",
        "cohere2",
        "ernie4_5",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "granite",
        "helium",
        "hunyuan_v1_dense",
        "internlm3",
    )
    + (
        "llama",
        "ministral",
        "ministral3",
        "mistral",
        "olmo",
        "olmo2",
        "olmo3",
        "phi3",
        "qwen2",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_vl_text",
    )
    + ("seed_oss", "smollm3", "stablelm", "vaultgemma")
)
_PLAIN = frozenset(
    (
        "apertus",
        "arcee",
        "bloom",
        "codegen",
        "gpt2",
        "gpt_neox",
        "gptj",
        "jais2",
        "nemotron",
        "opt",
        "phi",
        "starcoder2",
    )
)
"""Families of dense decoders whose layers have the matrices that `layer_weights` counts; the feed-forward layer has
three matrices in gated families and two in plain ones.
"""

_TIED = frozenset(
    (
        "bloom",
        "cohere",
        "cohere2",
        "ernie4_5",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "opt",
        "smollm3",
        "starcoder2",
        "vaultgemma",
    )
)
"""Families whose `config.json` may leave out that the head shares the embedding's weight."""

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


@final
@dataclass(frozen=True)
class Shape:
    """A dense decoder with attention of grouped heads.

    Args:
        hidden, intermediate, vocabulary: widths of the residual stream, of the feed-forward layer and of the head.
        layers: number of decoder layers.
        heads, kv_heads: number of query heads, and of heads of keys and values.
        head_width: width of one head.
        tied: whether the head shares the embedding's weight.
        gated: whether the feed-forward layer has three matrices, not two.

    Example:
        >>> small = Shape(hidden=64, intermediate=192, vocabulary=32, layers=3, heads=4, kv_heads=2, head_width=16)
        >>> small.parameters
        150336
    """

    hidden: int
    intermediate: int
    vocabulary: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    tied: bool = True
    gated: bool = True

    @property
    def attention(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_width

    @property
    def key_value(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.kv_heads * self.head_width

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of one layer."""
        return (
            2 * self.hidden * (self.attention + self.key_value)
            + (3 if self.gated else 2) * self.hidden * self.intermediate
        )

    @property
    def head_weights(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights; norms and biases, which differ from family to family, count as four hidden widths a layer."""
        return (
            self.layers * (self.layer_weights + 4 * self.hidden)
            + self.hidden
            + self.head_weights * (1 if self.tied else 2)
        )

    def lora(self, rank: int) -> int:
        """Returns the number of weights of an adapter of this rank on every matrix of every layer."""
        ends = (
            2 * (self.hidden + self.attention)
            + 2 * (self.hidden + self.key_value)
            + (3 if self.gated else 2) * (self.hidden + self.intermediate)
        )
        return self.layers * rank * ends


def read_shape(path: str | Path) -> Shape:
    """Reads the shape of a model.

    Args:
        path: a model folder, or a `config.json`.

    Raises:
        ConfigError: the file does not exist, or the model is no dense decoder.

    Example:
        >>> read_shape("nowhere")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: --model nowhere: there is no config.json...
    """
    model_path = Path(path)
    file = model_path / "config.json" if model_path.is_dir() else model_path
    if not file.is_file():
        raise ConfigError(
            f"--model {path}: there is no config.json; give a local model folder or its config.json (one file of a hub"
            " model is enough)"
        )
    return shape_of(read_json(file), str(file))


def shape_of(config: Mapping[str, Any], source: str = "config.json") -> Shape:
    """Returns the shape that a configuration of transformers describes.

    Args:
        config: table of the configuration; a model of several modalities has its language model under `text_config`.
        source: name of the configuration in messages.

    Raises:
        ConfigError: a size is missing, or the model is no dense decoder of a supported family.

    Example:
        >>> shape_of(
        ...     {
        ...         "hidden_size": 64,
        ...         "num_hidden_layers": 2,
        ...         "num_attention_heads": 4,
        ...         "vocab_size": 100,
        ...         "intermediate_size": 128,
        ...     }
        ... ).kv_heads
        4
    """
    config = config.get("text_config") or config
    if any((config.get(name) or 0) > 1 for name in _EXPERTS):
        raise ConfigError(
            f"{source}: a mixture of experts, whose cost depends on what is routed where; only dense decoders are"
            " estimated"
        )
    family = str(config.get("model_type") or "")
    if family and family not in _GATED | _PLAIN:
        families = ", ".join(sorted(_GATED | _PLAIN))
        raise ConfigError(
            f'{source}: model_type = "{family}" is no dense decoder whose layers are known here; known are {families}.'
            " If its layers are like those of "
            f"one of them, write that one's name into a copy of the file and give the copy"
        )
    sizes: dict[str, int] = {}
    for name, keys in _NAMES.items():
        value = next((config[key] for key in keys if config.get(key) is not None), None)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{source} has no {keys[0]} (a positive number), so the model's size is unknown; give the config.json"
                " of a causal language model"
            )
        sizes[name] = value
    hidden, heads = sizes["hidden"], sizes["heads"]
    return Shape(
        **sizes,
        intermediate=int(
            config.get("intermediate_size") or config.get("n_inner") or config.get("ffn_dim") or 4 * hidden
        ),
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_width=int(config.get("head_dim") or hidden // heads),
        tied=bool(config.get("tie_word_embeddings", family in _TIED)),
        gated=family not in _PLAIN,
    )
