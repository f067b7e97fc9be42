"""The policy of the language domain: the protocol that the domain calls, and the policy whose model is in this process.

Everything else (data, chat, environments, rewards, evaluation) is the domain's and does not know where the weights are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone, router_remark
from groupwise.causal_lm.config import BuiltinEngine, EngineConfig
from groupwise.causal_lm.loading import LoadedLM, checked, fit_tokenizer, load, prepared, read_config, save, unused_rows
from groupwise.causal_lm.sampler import Completions, Engine, GroupBatch, end_ids
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise.causal_lm.sharded import ShardedLM, check_spreads
from groupwise.causal_lm.small import small_model
from groupwise.config import ConfigError, keys_under, user_object
from groupwise.domain.language.chat import build_tokenizer
from groupwise.domain.language.config import LanguageConfig, ModelObjects, Pretrained, Scratch
from groupwise.domain.language.data import Splits
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import Learner
from groupwise.streams import Streams


class Policy(ABC):
    """A language policy: its engine samples completions; it scores them, accumulates gradients and saves itself.

    Prompts and completions are token ids, `B` members prompt by prompt. Log-probs are nats per token at the sampling
    temperature. A policy whose weights live elsewhere scores without gradient, takes gradients by `backward`, and says
    so by its learner (`differentiates` false).

    Attributes:
        tokenizer: a tokenizer of transformers, which encodes prompts and decodes completions.
        end_ids: ids that end a turn by themselves.
        max_positions: longest prompt and completion together, tokens; None where the model states no limit.
        supplies: names of the `Scored` fields that it can give.
        learner: the owner of weights and optimiser.
        engine: samples in training.
        live_engine: samples from the weights as they are, also where `engine` asks a server that may lag behind.
        device: where samples and scores are.
        remarks: sentences for people about the model, printed when a run starts.
    """

    tokenizer: Any
    end_ids: tuple[int, ...]
    max_positions: int | None
    supplies: frozenset[str]
    learner: Learner
    engine: Engine
    live_engine: Engine
    device: torch.device
    remarks: Sequence[str]

    def sample(self, batch: GroupBatch, *, live: bool = False) -> Completions:
        """Samples the groups of a batch without gradient.

        Args:
            live: whether the completions must be those of the weights as they are.
        """
        return (self.live_engine if live else self.engine).sample(batch)

    @abstractmethod
    def score(self, inputs: ScoringInputs) -> dict[str, Tensor]:
        """Scores completions under the live weights, as `groupwise.causal_lm.scoring.score` does: `{name: [B, T]}`,
        zero where the mask is false.
        """

    @abstractmethod
    def backward(self, inputs: ScoringInputs, cotangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Accumulates the gradient of `sum(cotangent * field)` where the weights are, as
        `groupwise.causal_lm.scoring.backward` does, and returns the detached fields.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes the policy, so that `model.kind = "pretrained"` and its path open it.

        Args:
            folder: exists and is empty.
        """

    def close(self) -> None:
        """Ends what the engine started; the learner is closed by the domain. A second call does nothing."""
        self.engine.close()

    @abstractmethod
    def with_engine(self, engine: EngineConfig) -> Policy:
        """Returns the same weights and learner with another engine, for a stage that changes it.

        Raises:
            ConfigError: the engine cannot sample from this model.
        """


class LocalPolicy(Policy):
    """A causal language model of transformers in this process; see `Policy`.

    Args:
        loaded: the model with its tokenizer, taken apart at its head.
        engine: what samples in training.
        learner: the owner of its weights; a local one of the model where omitted.

    Raises:
        ConfigError: no end-of-sequence token, or an engine that cannot sample from this model.
    """

    supplies = frozenset({"log_prob", "entropy", "score_norm"})

    def __init__(self, loaded: LoadedLM, engine: EngineConfig, learner: Learner | None = None) -> None:
        self._loaded, self._engine_config = loaded, engine
        self.module, self.tokenizer, self.backbone = loaded.model, loaded.tokenizer, loaded.backbone
        self.learner: Learner = LocalLearner(self.module, self._shard) if learner is None else learner
        self.end_ids = end_ids(self.module, self.tokenizer)
        self.max_positions = self.backbone.max_positions
        router = router_remark(self.backbone.config)
        self.remarks: Sequence[str] = [*([router] if router else []), *unused_rows(self.module, self.tokenizer)]
        self.engine = engine.open(self.backbone, self.tokenizer)
        self.live_engine = self.engine if self.engine.live else BuiltinEngine().open(self.backbone, self.tokenizer)

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The device of the weights that are trained."""
        return self.backbone.trained_on

    def score(self, inputs: ScoringInputs) -> dict[str, Tensor]:
        """Scores completions, with gradient unless the caller switched it off."""
        if (shards := self.backbone.shards) is not None:
            return shards.score(inputs)
        return scoring.score(self.backbone, inputs)

    def backward(self, inputs: ScoringInputs, cotangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Accumulates `.grad`; the head takes its part in the forward pass."""
        if (shards := self.backbone.shards) is not None:
            return shards.backward(inputs, cotangents)
        return scoring.backward(self.backbone, inputs, cotangents)

    def save(self, folder: Path) -> None:
        """Writes a plain transformers folder: weights (an adapter merged into them) as safetensors, configuration,
        tokenizer.
        """
        save(self.module, self.tokenizer, folder)

    def with_engine(self, engine: EngineConfig) -> LocalPolicy:
        """Opens another engine over the same model."""
        return self if engine == self._engine_config else LocalPolicy(self._loaded, engine, self.learner)

    def _shard(self, mesh: DeviceMesh) -> nn.Module:
        """Returns a sharded copy of the model. All policies of this model score with the copy from then on."""
        self.backbone.shards = ShardedLM(self.backbone, mesh)
        return self.backbone.shards.model


def open_policy(
    config: LanguageConfig, splits: Splits, streams: Streams, device: torch.device, *, spreads: bool = False
) -> Policy:
    """Opens the policy that `model` of a configuration names.

    Args:
        config: model, engine and environment.
        splits: texts of the data, from which the tokenizer of a model with fresh weights is built.
        streams: the random streams of the run; fresh weights are drawn from it.
        device: where the weights go.
        spreads: whether they go from there to shards.

    Raises:
        ConfigError: a model that cannot be used, or messages as prompts of a model without a chat template.
    """
    model = config.model
    if isinstance(model, ModelObjects):
        module, words = user_object(model.model, "model"), user_object(model.tokenizer, "tokenizer")
        return LocalPolicy(prepared(module, words, model.dropout, model.lora, device), config.engine)
    if not isinstance(model, Scratch | Pretrained):
        return model.open(config, streams)
    if isinstance(model, Pretrained):
        with keys_under("domain.model"):
            if spreads and (model_config := read_config(checked(model))) is not None:
                check_spreads(model_config)
        with keys_under("domain.model"):
            loaded = load(model, device)
        return LocalPolicy(loaded, config.engine)
    replies = config.environment.replies if config.environment is not None else ()
    texts = [prompt.columns["prompt"] for prompt in (*splits.train, *splits.held_out)]
    texts += [text for example in splits.demonstrations for text in (example.prompt.columns["prompt"], *example.turns)]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(
            "model.kind = 'scratch' has no chat template, and a prompt is a list of messages; give prompts as texts, or"
            " a model folder"
        )
    tokenizer = build_tokenizer(model.tokenizer, [*texts, *replies])
    seed = streams.seed("model") if model.seed is None else model.seed
    module = cast(nn.Module, small_model(model.shape, tokenizer, seed, getattr(torch, model.dtype))).to(device)
    fit_tokenizer(tokenizer, module)
    return LocalPolicy(LoadedLM(module, tokenizer, Backbone(module)), config.engine)
