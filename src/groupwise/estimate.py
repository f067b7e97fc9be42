"""The memory of a training step of a causal language model, by formula from its configuration: no weight is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.causal_lm.head_tiles import CPU_TILES, Tiles


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder on which its memory depends.

    Args:
        parameters, trained: numbers of weights, of the whole model and of those that are trained.
        vocabulary, hidden, intermediate: widths of the head, of the residual stream and of the feed-forward layer.
        queries, keys: widths of all query heads together, and of all key heads.
        layers: number of decoder layers.
        layer_parameters: weights of one layer.
    """

    parameters: int
    trained: int
    vocabulary: int
    hidden: int
    intermediate: int
    queries: int
    keys: int
    layers: int
    layer_parameters: int

    @staticmethod
    def of(config: Any, lora: Any = None) -> Shape:
        """Counts the weights of a model that transformers makes without data.

        Args:
            config: a configuration of transformers.
            lora: a `groupwise.causal_lm.config.LoraConfig`; without one every weight is trained.

        Example:
            >>> from transformers import Qwen2Config
            >>> Shape.of(Qwen2Config(hidden_size=8, num_attention_heads=2, num_key_value_heads=1, vocab_size=10)).keys
            4
        """
        import torch
        from transformers import AutoModelForCausalLM

        from groupwise.causal_lm.loading import add_lora

        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
            parameters = model.num_parameters()
            ends = {
                part.weight: part.weight.numel()
                for part in (model.get_input_embeddings(), model.get_output_embeddings())
            }
            adapted: Any = model if lora is None else add_lora(model, lora)
        text = config.get_text_config()
        heads = text.num_attention_heads
        head_width = getattr(text, "head_dim", None) or text.hidden_size // heads
        widths = ("intermediate_size", "n_inner", "ffn_dim")
        return Shape(
            parameters=parameters,
            trained=sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad),
            vocabulary=text.vocab_size,
            hidden=text.hidden_size,
            intermediate=next((size for name in widths if (size := getattr(text, name, None))), 4 * text.hidden_size),
            queries=heads * head_width,
            keys=(getattr(text, "num_key_value_heads", None) or heads) * head_width,
            layers=text.num_hidden_layers,
            layer_parameters=(parameters - sum(ends.values())) // text.num_hidden_layers,
        )


@dataclass(frozen=True)
class Step:
    """The sizes of a training step.

    Args:
        prompts, group_size: of the whole step.
        prompt_tokens, completion_tokens: lengths.
        pass_members: members of a pass with a gradient; unset takes all members of a minibatch.
        minibatches: parts of a batch.
        processes: devices that share the prompts.
        sharded: whether they share weights, gradients and moments as well.
        weight_bytes, number_bytes: bytes of a weight, and of a number that is computed with.
        reference: whether the step holds a reference policy.
        checkpointing: whether activations are computed again in the backward pass.
        samples: whether this process samples; false where servers do.
    """

    prompts: int
    group_size: int
    prompt_tokens: float
    completion_tokens: float
    pass_members: int | None = None
    minibatches: int = 1
    processes: int = 1
    sharded: bool = False
    weight_bytes: int = 4
    number_bytes: int = 4
    reference: bool = False
    checkpointing: bool = False
    samples: bool = True


@dataclass(frozen=True)
class Part:
    """Bytes on one device, and the formula that gives them."""

    size: float
    formula: str


def memory(shape: Shape, step: Step, tiles: Tiles = CPU_TILES) -> Mapping[str, Part]:
    """Returns what a step holds on one device, by part. Parts of size 0 are left out.

    Weights, moments and reference stay. Sampling and updates are not at the same time, so `peak` adds the larger of the
    cache (with the whole weights, where they are in shards) and of gradients, activations and logits.

    Args:
        shape: the shape of the model.
        step: the step of the run.
        tiles: the tiles of the device's head.

    Example:
        Seven billion weights in fp32: 16 bytes each, or 2 on each of eight devices.

        >>> shape = Shape(7 * 10**9, 7 * 10**9, 32000, 4096, 11008, 4096, 4096, 32, 2 * 10**8)
        >>> for sharded in (False, True):
        ...     parts = memory(shape, Step(8, 8, 100, 100, pass_members=1, processes=8, sharded=sharded))
        ...     print(sum(parts[name].size for name in ("weights", "gradients", "moments")) / shape.parameters)
        16.0
        2.0
    """
    shards = step.processes if step.sharded else 1
    over = f" / {shards}" if shards > 1 else ""
    weight, number = step.weight_bytes, step.number_bytes
    adapter = shape.trained < shape.parameters
    trained_bytes = 4 if adapter else weight
    members = math.ceil(step.prompts / step.processes) * step.group_size
    at_once = min(members, step.pass_members or math.ceil(members / step.minibatches))
    # A prompt is forwarded once for the members of its group.
    tokens = math.ceil(at_once / step.group_size) * step.prompt_tokens + at_once * step.completion_tokens
    layer = number * (8 * shape.hidden + 5 * (shape.queries + shape.keys) + 4 * shape.intermediate)
    if adapter and weight < 4:
        # An adapter in fp32 keeps the inputs of its layers in fp32.
        layer += 4 * (5 * shape.hidden + shape.queries + shape.intermediate)
        layer -= number * (2 * shape.hidden + shape.intermediate)
    kept = number * shape.hidden * shape.layers + layer if step.checkpointing else layer * shape.layers
    # An adapter adds its own weights, in fp32.
    weights = weight * shape.parameters + (4 * shape.trained if adapter else 0)
    ends = shape.parameters - shape.layers * shape.layer_parameters
    gathered = weight * (ends + 2 * shape.layer_parameters) * (1 if adapter else 2)
    cache = 2 * number * shape.layers * shape.keys * members * (step.prompt_tokens + step.completion_tokens)
    # Autocast keeps each layer's weights in its own type until the backward pass, or while tokens are sampled.
    casts = number * shape.layer_parameters * (1 if step.checkpointing else shape.layers) if number < weight else 0
    parts = {
        "weights": Part(weights / shards, f"{weight} bytes x weights{over}"),
        "moments": Part(2 * trained_bytes * shape.trained / shards, f"2 x {trained_bytes} bytes x trained{over}"),
        "reference": Part(
            trained_bytes * shape.trained / shards if step.reference else 0, f"{trained_bytes} bytes x trained{over}"
        ),
        "gradients": Part(trained_bytes * shape.trained / shards, f"{trained_bytes} bytes x trained{over}"),
        "activations": Part(tokens * kept, f"{tokens:,.0f} tokens x {kept / number:,.0f} numbers x {number} bytes"),
        "casts": Part(casts, f"{number} bytes x weights of {'one layer' if step.checkpointing else 'layers'}"),
        "logits": Part(tiles.held(at_once * step.completion_tokens, shape.vocabulary), "tiles of the head, fp32"),
        "gathered": Part(gathered if shards > 1 else 0, "embedding, head and two layers, whole"),
        "cache": Part(
            cache if step.samples else 0,
            f"keys and values: 2 x {shape.layers} x {shape.keys} x {members} members x"
            f" {step.prompt_tokens + step.completion_tokens:,.0f} tokens x {number} bytes",
        ),
        "sampler": Part(weights if shards > 1 and step.samples else 0, "whole weights, while tokens are sampled"),
    }
    stay, update, sampling = (
        sum(parts[name].size for name in names)
        for names in (
            ("weights", "moments", "reference"),
            ("gradients", "activations", "casts", "logits", "gathered"),
            ("cache", "sampler"),
        )
    )
    parts["peak"] = Part(stay + max(update, sampling), "what stays, and the larger of an update and sampling")
    return {name: part for name, part in parts.items() if part.size}
