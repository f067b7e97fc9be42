"""The configuration of a causal language model and of sampling from it. Imports neither torch nor transformers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, InModule, may_run
from groupwise.config.errors import Count, Length, Parallel, Positive, Seconds, Width


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


@final
class BuiltinEngine(Config):
    """Sampling in this process by `groupwise.causal_lm.sampler`: one prefill a prompt, log-probs kept, seeds per
    member.

    Args:
        max_members: sample at most this many members at once, whole groups; all of a batch where omitted.
    """

    kind: Literal["builtin"] = "builtin"
    max_members: Positive | None = None


@final
class TransformersEngine(Config):
    """Sampling in this process by ``model.generate``: for model families the built-in sampler cannot serve.

    Its random numbers belong to the batch, not to the member: the same batch repeats, but a member's text depends on
    its neighbours.

    Args:
        max_members: sample at most this many members at once, whole groups; all of a batch where omitted.
    """

    kind: Literal["transformers"] = "transformers"
    max_members: Positive | None = None


_OF_THE_RUN = {
    "--port": "leave it out",
    "--host": "leave it out",
    "--uds": "leave it out",
    "--served-model-name": "write domain.engine.model",
}
"""Arguments of a started server that would move it to another address, and what to write instead."""


@final
class SyncFromPath(Config):
    """A user's way of sending weights to the servers.

    Args:
        path: `package.module:Class`, a subclass of `groupwise.causal_lm.engine.transport.Transport`; the module may be
            in the working directory.
        arguments: the arguments of the class, by name, after the model, its tokenizer and `domain.engine.folder`.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_a_transport(self) -> SyncFromPath:
        if may_run(self.path):
            from groupwise.causal_lm.engine.transport import transport_class

            transport_class(self.path)
        return self


VLLM_MEMORY_SHARE = 0.92
"""The share of a GPU's memory that `vllm serve` takes where no argument names one (vLLM 0.32)."""


@final
class VllmEngine(Config):
    """Sampling by one or several vLLM servers, through their OpenAI-compatible completions with token ids.

    The servers receive the weights as they change, and after every change their log-probs of a few sequences are
    compared with the trainer's: a difference beyond rounding ends the run. Evaluation samples from them as well.

    Args:
        address: the address of the server, without the path; a list for several, which share the groups of a batch.
            Where several processes train, the first has the first of them, the second the second, and so on in turn;
            fewer servers than processes are shared by all, and the first process sends the weights.
        model: name under which the servers serve the model.
        sync: how the weights go there: `lora` loads the adapter alone, `folder` reloads a model folder, `auto` chooses
            by whether an adapter is trained. With `none` whoever runs the server refreshes it; evaluation then samples
            in this process, and a behaviour correction sees how far the server lags. A table with
            ``kind = "callable"`` names a class of your own.
        folder: where the weights are written for the servers, who must see it under the same path; where omitted, a
            folder in memory (`/dev/shm`), for servers on this machine.
        start: starts a server on this machine, on an address of its own, and ends it with the run; one for each process
            that trains, on that process's GPU.
        sleep: between two batches the servers give the GPU back to the trainer (vLLM's sleep mode): their weights are
            in the machine's memory, and their cache is forgotten. A server of your own has to be started with
            ``--enable-sleep-mode`` and ``VLLM_SERVER_DEV_MODE=1``; after the run it sleeps.
        executable: the command that is started.
        arguments: further arguments of `vllm serve`.
        processed_logprobs: the server was started with ``--logprobs-mode processed_logprobs``, so that its log-probs
            are those after temperature, top-k and top-p. Without, only temperature 1 and no truncation can be used,
            where both are the same.
        concurrency: requests under way at once.
        start_seconds: longest wait for a server that is started.
        first_token_seconds: longest wait for the first token of a completion.
        silence_seconds: longest wait for the next token.
        timeout_seconds: longest wait for one completion.
        patience_seconds: how long a server that is paused, busy or gone is asked again before the run does without it.
    """

    kind: Literal["vllm"] = "vllm"
    address: str | tuple[str, ...] = "http://localhost:8000"
    model: str = "policy"
    sync: Literal["auto", "lora", "folder", "none"] | SyncFromPath = "auto"
    folder: Path | None = None
    start: bool = False
    sleep: bool = False
    executable: str = "vllm"
    arguments: tuple[str, ...] = ()
    processed_logprobs: bool = True
    concurrency: Parallel = 64
    start_seconds: Seconds = 600.0
    first_token_seconds: Seconds = 60.0
    silence_seconds: Seconds = 10.0
    timeout_seconds: Seconds = 600.0
    patience_seconds: Seconds = 60.0

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, without a slash at their end."""
        addresses = (self.address,) if isinstance(self.address, str) else self.address
        return tuple(address.rstrip("/") for address in addresses)

    @property
    def memory_share(self) -> float:
        """The share of a GPU's memory that a server started by the run takes; 0 where the run starts none.

        Example:
            >>> VllmEngine(start=True, arguments=("--gpu-memory-utilization", "0.5")).memory_share
            0.5
        """
        if not self.start:
            return 0.0
        words = [word for argument in self.arguments for word in argument.split("=", 1)]
        after = {name.replace("_", "-"): value for name, value in itertools.pairwise(words)}
        try:
            return float(after.get("--gpu-memory-utilization", VLLM_MEMORY_SHARE))
        except ValueError:
            return VLLM_MEMORY_SHARE

    @model_validator(mode="after")
    def _has_an_address(self) -> VllmEngine:
        if not self.addresses:
            raise ValueError('address: the list is empty; write address = "http://HOST:PORT"')
        if len(set(self.addresses)) < len(self.addresses):
            raise ValueError("address: an address stands in the list twice; write each server once")
        if self.start and self.sync == "none":
            raise ValueError('start = true with sync = "none": the server would never follow; leave sync out')
        for argument in self.arguments if self.start else ():
            name = argument.partition("=")[0].replace("_", "-")
            if name in _OF_THE_RUN:
                raise ValueError(f"arguments: {argument}: the run itself writes {name}; {_OF_THE_RUN[name]}")
        return self


EngineConfig = Annotated[BuiltinEngine | TransformersEngine | VllmEngine, Field(discriminator="kind")]
