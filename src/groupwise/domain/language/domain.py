"""The language domain: prompts in, groups of completions out, the same tokens rescored under the live policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig
from groupwise.causal_lm.engine import Engine, open_engine
from groupwise.causal_lm.experts import router_remark
from groupwise.causal_lm.loading import fit_tokenizer, load, prepared, save
from groupwise.causal_lm.sampler import end_ids
from groupwise.causal_lm.scratch import small_model
from groupwise.config import ConfigError, user_object
from groupwise.domain.base import Domain
from groupwise.domain.language import evaluate
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.config import LanguageConfig
from groupwise.domain.language.conversation import Conversations
from groupwise.domain.language.data import Splits, split
from groupwise.domain.language.model import ModelObjects, Scratch
from groupwise.domain.language.pieces import pieces
from groupwise.domain.language.prompts import tokenize
from groupwise.domain.language.source import Rows
from groupwise.domain.language.supervised import Example, as_samples, encode_demonstration
from groupwise.domain.language.tokenizer import build_tokenizer
from groupwise.domain.protocol import Evaluation, Prompt, Samples
from groupwise.learner.hashing import hash_weights
from groupwise.records import Scored
from groupwise.reward import RewardEvent, Rewards, RewardTable
from groupwise.reward.scoring.columns import check_columns
from groupwise.streams import Streams

# Columns that the domain itself adds for rewards.
_OWN_COLUMNS = ("num_tokens", "truncated")


@final
class LanguageDomain(Domain):
    """A causal language model with its data and rewards; see `groupwise.Domain`.

    Args:
        config: model, data, rewards, sampling, conversation, evaluation.
        streams: of the run; fresh weights are drawn from it.
        device: where the model lives.
        parent: a domain whose model is shared, where only other settings changed.

    Raises:
        ConfigError: data or a model that cannot be used.
        RewardError: a reward that cannot be opened, or that needs a column which the data lack.
    """

    unit = "nats per token"
    density = False
    supplies = frozenset({"log_prob", "entropy", "score_norm"})
    auxiliary = frozenset({"supervised"})

    def __init__(
        self,
        config: LanguageConfig,
        *,
        streams: Streams,
        device: str | torch.device = "cpu",
        parent: LanguageDomain | None = None,
    ) -> None:
        self.config, self._streams = config, streams
        if parent is not None and parent.config.model != config.model:
            raise ConfigError("model: it belongs to the whole run and cannot differ between stages; set it outside")
        same_data = (
            parent is not None
            and parent.config.data == config.data
            and parent.config.demonstrations == config.demonstrations
        )
        splits = parent._splits if parent is not None and same_data else split(config.data, config.demonstrations)
        self._splits = splits
        if parent is not None:
            self.module, self.tokenizer, self.backbone, self._weights_hash = (
                parent.module,
                parent.tokenizer,
                parent.backbone,
                parent._weights_hash,
            )
        else:
            self.module, self.tokenizer, self.backbone = _load(config, splits, streams, torch.device(device))
            # Taken now, before anything is trained; only the cache of a supervised stage asks for it.
            self._weights_hash = hash_weights(self.module) if splits.demonstrations else ""
        self._eos = end_ids(self.module, self.tokenizer)
        self._engine = open_engine(config.engine, self.backbone, self.tokenizer)
        # A server may lag behind; what is measured is the live policy.
        self._evaluating_engine = (
            self._engine if self._engine.live else open_engine(BuiltinEngine(), self.backbone, self.tokenizer)
        )
        self._chat = Chat(self.tokenizer, config.chat)
        self.rewards = Rewards(config.rewards)
        self._check_columns(splits)
        limit = self._prompt_limit()
        self._train = tokenize(splits.train, self._chat, config.environment, limit, config.overlong)
        self._held_out = tokenize(
            splits.held_out[: config.evaluation.num_prompts], self._chat, config.environment, limit, config.overlong
        )
        self._ids = self._held_out.ids | self._train.ids

    @property
    def num_prompts(self) -> int:
        return len(self._train.prompts)

    @property
    def counts(self) -> dict[str, int]:
        """What became of the data: prompts trained on and held out, removed for being in both, dropped or cut for their
        length.
        """
        return {
            "num_train": len(self._train.prompts),
            "num_held_out": len(self._held_out.prompts),
            "num_demonstrations": len(self._splits.demonstrations),
            "num_removed": self._splits.num_removed,
            "num_dropped": self._train.num_dropped + self._held_out.num_dropped,
            "num_truncated": self._train.num_truncated + self._held_out.num_truncated,
        }

    @property
    def remarks(self) -> list[str]:
        """What was left out of the data or cut, and of the loss of a mixture of experts, in sentences."""
        counts, limit = self.counts, self._prompt_limit()
        said = {
            "num_removed": "rows left out of training, because a held-out prompt asks the same",
            "num_dropped": f"prompts left out, longer than {limit} tokens (domain.overlong = 'drop')",
            "num_truncated": f"prompts cut on the left, longer than {limit} tokens (domain.overlong = 'truncate')",
        }
        router = router_remark(self.backbone.config)
        source = self.config.data.source
        if isinstance(source, Rows) and source.held_out_path is None:
            said["num_held_out"] = (
                "prompts kept from the rows for evaluation and never trained on (eval_data=ROWS evaluates on others,"
                " domain.data.num_held_out sets how many)"
            )
        return [
            *(f"data: {text}: {counts[name]}" for name, text in said.items() if counts[name]),
            *([router] if router else []),
            *self.rewards.remarks,
        ]

    @property
    def trained_on(self) -> frozenset[str]:
        """Training prompts and those of demonstrations, as the source tells prompts apart."""
        return _identities([*self._splits.train, *(each.prompt for each in self._splits.demonstrations)])

    @property
    def evaluated_on(self) -> frozenset[str]:
        """The prompts that `evaluate` asks."""
        return _identities(self._held_out.prompts)

    def adapted(self, config: LanguageConfig) -> LanguageDomain:
        """The same model under other settings, for a stage that changes them.

        Raises:
            ConfigError: the model itself differs.
        """
        return self if config == self.config else LanguageDomain(config, streams=self._streams, parent=self)

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Training prompts by their place."""
        return [self._train.prompts[index] for index in indices]

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        *,
        streams: Streams,
        step: int,
        settings: Mapping[str, float],
        requires: frozenset[str],
    ) -> Samples:
        """A group for each prompt; the seed of a member is `streams.seed("sample", step, prompt key, member)`, so its
        text depends on nothing else.
        """
        sampling = self._sampling(settings)
        seeds = [streams.seed("sample", step, prompt.key, member) for prompt in prompts for member in range(group_size)]
        return self._complete(self._engine, prompts, group_size, sampling, seeds, requires)

    def reward(self, samples: Samples) -> RewardTable:
        """Every reward of every member; an environment's own is called `environment`."""
        return self._score(samples, judges=False)

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Fields `[B, T]` of members `rows` at the temperature each was sampled at; `auxiliary["supervised"]` for
        demonstrations.
        """
        chosen = samples.select(rows.clamp(min=0))
        fields: dict[str, Tensor] = {}
        for members, part, temperature in _by_temperature(chosen):
            found = scoring.score(
                self.backbone, **_inputs(part), requires=_scored_fields(requires), temperature=temperature
            )
            for name, value in found.items():
                fields[name] = (
                    value
                    if members is None
                    else fields.get(name, value.new_zeros(chosen.mask.shape)).index_copy(0, members, value)
                )
        return _as_scored(fields, chosen)

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        """Accumulates `.grad` where the gradient by every field is known beforehand; the head takes its part in the
        forward pass.
        """
        chosen = samples.select(rows.clamp(min=0))
        known = {name: value for name, value in cotangents.tensors().items() if not name.startswith("auxiliary.")}
        supervised = cotangents.auxiliary.get("supervised")
        if supervised is not None:
            known["log_prob"] = known["log_prob"] - supervised.unsqueeze(1) * chosen.payload["target"]
        fields: dict[str, Tensor] = {}
        for members, part, temperature in _by_temperature(chosen):
            own = known if members is None else {name: value[members] for name, value in known.items()}
            found = scoring.backward(
                self.backbone,
                **_inputs(part),
                cotangents=own,
                requires=_scored_fields(frozenset(known)),
                temperature=temperature,
            )
            for name, value in found.items():
                fields[name] = (
                    value
                    if members is None
                    else fields.get(name, value.new_zeros(chosen.mask.shape)).index_copy(0, members, value)
                )
        return _as_scored(fields, chosen).detach()

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """`size` demonstrations drawn without replacement within the step; fewer where the corpus is smaller; None
        without a corpus.
        """
        corpus = self._corpus
        if not corpus:
            return None
        drawn = streams.numpy("demonstrations", step).choice(len(corpus), size=min(size, len(corpus)), replace=False)
        return as_samples([corpus[int(index)] for index in drawn], self.backbone.device)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report: each reward and judge, their sum, length, truncation, `pass@k`."""
        config = self.config.evaluation
        rewards = [*self.config.rewards, *(["environment"] if self.config.environment is not None else [])]
        modes = (("greedy", config.greedy, 1), ("sampled", config.sampled, config.num_samples))
        return tuple(
            name for mode, wanted, num in modes if wanted for name in evaluate.metric_names(mode, rewards, num)
        )

    def evaluate(self, *, streams: Streams) -> Evaluation:
        """Greedy and sampled results on the held-out prompts, with the same random numbers every time."""
        config = self.config.evaluation
        trained = [name for name, reward in self.config.rewards.items() if reward.trains]
        first = trained[0] if trained else "environment"
        found: dict[str, float] = {}
        records: list[Mapping[str, Any]] = []
        events: list[RewardEvent] = []
        for mode, wanted, num_samples in (
            ("greedy", config.greedy, 1),
            ("sampled", config.sampled, config.num_samples),
        ):
            if wanted:
                written = self._write(self._held_out.prompts, num_samples, streams, greedy=mode == "greedy")
                found |= evaluate.metrics(mode, written, first)
                records += evaluate.records(mode, written, config.num_texts)
                events += written.table.events
        return Evaluation(found, tuple(records), events=events)

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Prompt, text, tokens (as texts, and as the ids that were forwarded) and settings of members, for people."""
        described, texts = [], self._texts(samples.select(rows))
        ids = [samples.payload["tokens"][row, : int(samples.payload["length"][row])].tolist() for row in rows.tolist()]
        tokens = pieces(self.tokenizer, ids)
        for place, row in enumerate(rows.tolist()):
            prompt = samples.prompts[int(samples.group[row])]
            record: dict[str, Any] = {"prompt": prompt.columns["prompt"], "key": prompt.key, "text": texts[place]}
            if "messages" in samples.payload:
                record["messages"] = samples.payload["messages"][row]
            record |= {"tokens": tokens[place], "num_tokens": len(tokens[place])}
            # Texts do not tell which tokens they were: whoever computes the step again needs the ids.
            record |= {"prompt_ids": list(samples.payload["prompt_ids"][row]), "token_ids": ids[place]}
            record |= {"truncated": samples.truncated is not None and bool(samples.truncated[row])}
            described.append(record | {"settings": dict(samples.settings)})
        return described

    def fingerprint(self) -> str:
        """Hash of the model as it was loaded, the tokenizer, and the corpus in tokens."""
        corpus = [(each.prompt_ids, each.tokens, each.target) for each in self._corpus]
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        content = json.dumps([self._weights_hash, vocabulary, corpus])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """A plain transformers folder: weights (an adapter merged into them) as safetensors, configuration,
        tokenizer.
        """
        save(self.module, self.tokenizer, folder)

    def close(self) -> None:
        """Ends the rewards' threads and processes."""
        self.rewards.close()

    @cached_property
    def _corpus(self) -> list[Example]:
        eos = self.tokenizer.eos_token_id
        stop = self._stop()
        limit = self.backbone.max_positions
        return [
            encode_demonstration(each, self._chat, self.config.environment, eos, stop, limit)
            for each in self._splits.demonstrations
        ]

    def _stop(self) -> tuple[str, ...]:
        own = self.config.environment.stop if self.config.environment is not None else ()
        return tuple(dict.fromkeys([*self.config.sampling.stop, *own]))

    def _sampling(self, settings: Mapping[str, float], greedy: bool = False) -> SamplingConfig:
        whole = {"top_k", "max_new_tokens", "max_turn_tokens"}
        given = {name: int(value) if name in whole else float(value) for name, value in settings.items()}
        return SamplingConfig.model_validate(
            {**self.config.sampling.model_dump(), **given, "stop": self._stop(), "greedy": greedy}
        )

    def _complete(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        requires: frozenset[str],
    ) -> Samples:
        environment = self.config.environment
        columns = [prompt.columns for prompt in prompts for _ in range(group_size)]
        talk = (
            None
            if environment is None
            else Conversations(environment, columns, self._chat, self._eos, sampling.max_new_tokens)
        )
        ids = [self._prompt_ids(prompt) for prompt in prompts]
        answer = None if talk is None else talk.answer
        found = engine.sample(ids, group_size, sampling, seeds, requires=_scored_fields(requires), continue_with=answer)
        payload: dict[str, Any] = {
            "prompt_ids": [each for each in ids for _ in range(group_size)],
            "tokens": found.tokens,
            "target": torch.zeros_like(found.mask),
            "length": found.length,
            "temperature": torch.full(
                (len(seeds),), sampling.temperature, dtype=torch.float64, device=found.tokens.device
            ),
        }
        if talk is not None:
            payload |= {"messages": talk.messages, "environment": talk.rewards}
        return Samples(
            prompts=list(prompts),
            group=torch.arange(len(prompts), device=found.tokens.device).repeat_interleave(group_size),
            mask=found.mask,
            old_log_prob=found.log_prob,
            behaviour_log_prob=found.behaviour_log_prob,
            recorded=Scored(found.log_prob, entropy=found.entropy, score_norm=found.score_norm),
            truncated=found.truncated,
            payload=payload,
            settings={"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": float(sampling.top_k)},
        )

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        if prompt.key not in self._ids:
            # A prompt from elsewhere, such as one typed at `groupwise sample`.
            self._ids |= tokenize([prompt], self._chat, self.config.environment, self._prompt_limit(), "error").ids
        return self._ids[prompt.key]

    def _texts(self, samples: Samples) -> list[str]:
        """What every member wrote, without special tokens."""
        rows = zip(samples.payload["tokens"].tolist(), samples.payload["length"].tolist(), strict=True)
        return self.tokenizer.batch_decode([tokens[:length] for tokens, length in rows], skip_special_tokens=True)

    def _score(self, samples: Samples, judges: bool) -> RewardTable:
        of_member = [samples.prompts[index].columns for index in samples.group.tolist()]
        names = set.intersection(*(set(columns) for columns in of_member)) - {"prompt"} if of_member else set()
        columns: dict[str, list[Any]] = {name: [own[name] for own in of_member] for name in sorted(names)}
        columns["num_tokens"] = samples.payload["length"].tolist()
        columns["truncated"] = [False] * len(samples) if samples.truncated is None else samples.truncated.tolist()
        completions = samples.payload.get("messages") or self._texts(samples)
        table = self.rewards.score([own["prompt"] for own in of_member], completions, columns, judges=judges)
        if self.config.environment is None:
            return table
        values = {"environment": list(samples.payload["environment"]), **table.values}
        return replace(table, values=values, weights={"environment": self.config.environment.weight, **table.weights})

    def _write(self, prompts: Sequence[Prompt], num_samples: int, streams: Streams, greedy: bool) -> evaluate.Written:
        seeds = [streams.seed("evaluate", prompt.key, number) for prompt in prompts for number in range(num_samples)]
        samples = self._complete(
            self._evaluating_engine,
            prompts,
            num_samples,
            self._sampling({}, greedy=greedy),
            seeds,
            frozenset({"log_prob"}),
        )
        texts = self._texts(samples)
        truncated = [] if samples.truncated is None else samples.truncated.tolist()
        return evaluate.Written(
            prompts,
            num_samples,
            self._score(samples, judges=True),
            texts,
            samples.payload["length"].tolist(),
            truncated,
        )

    def _prompt_limit(self) -> int | None:
        context, asked = self.backbone.max_positions, self.config.max_prompt_tokens
        course = self.config.sampling_schedule.get("max_new_tokens")
        completion = max(self.config.sampling.max_new_tokens, 0 if course is None else int(course.extremes()[1]))
        room = None if context is None else context - completion
        if context is not None and completion >= context:
            key = (
                "sampling.max_new_tokens"
                if completion == self.config.sampling.max_new_tokens
                else "sampling_schedule.max_new_tokens"
            )
            raise ConfigError(
                f"{key} = {completion} leaves no room for a prompt in the model's context of {context} tokens; write at"
                f" most {context - 1}"
            )
        return asked if room is None else room if asked is None else min(asked, room)

    def _check_columns(self, splits: Splits) -> None:
        present = [*(splits.train[0].columns if splits.train else ()), *_OWN_COLUMNS]
        self.rewards.check_columns(present)
        if self.config.environment is not None:
            check_columns("environment", self.config.environment.needs, present)


def _identities(prompts: Sequence[Prompt]) -> frozenset[str]:
    """The prompts' keys without the number that tells a repeated one apart."""
    return frozenset(prompt.key.partition("-")[0] for prompt in prompts)


def _load(
    config: LanguageConfig, splits: Splits, streams: Streams, device: torch.device
) -> tuple[nn.Module, Any, Backbone]:
    model = config.model
    if isinstance(model, ModelObjects):
        policy = user_object(model.model, "model")
        tokenizer = user_object(model.tokenizer, "tokenizer")
        lm = prepared(policy, tokenizer, model.dropout, model.lora, device)
        return lm.model, lm.tokenizer, lm.backbone
    if not isinstance(model, Scratch):
        found = load(model.loading, device)
        return found.model, found.tokenizer, found.backbone
    replies = config.environment.replies if config.environment is not None else ()
    texts = [prompt.columns["prompt"] for prompt in (*splits.train, *splits.held_out)]
    texts += [text for each in splits.demonstrations for text in (each.prompt.columns["prompt"], *each.turns)]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(
            "model.kind = 'scratch' has no chat template, and a prompt is a list of messages; give prompts as texts, or"
            " a model folder"
        )
    tokenizer = build_tokenizer(model.tokenizer, [*texts, *replies])
    seed = streams.seed("model") if model.seed is None else model.seed
    module = cast(nn.Module, small_model(model.shape, tokenizer, seed, getattr(torch, model.dtype))).to(device)
    fit_tokenizer(tokenizer, module)
    return module, tokenizer, Backbone(module)


def _scored_fields(requires: frozenset[str]) -> frozenset[str]:
    return (requires & LanguageDomain.supplies) | {"log_prob"}


def _by_temperature(samples: Samples) -> list[tuple[Tensor | None, Samples, float]]:
    """Members that share a temperature; usually all do, and then nothing is copied."""
    temperature = samples.payload["temperature"]
    values = temperature.unique().tolist()
    if len(values) <= 1:
        return [(None, samples, values[0] if values else 1.0)]
    members = [(temperature == value).nonzero()[:, 0] for value in values]
    return [(rows, samples.select(rows), value) for rows, value in zip(members, values, strict=True)]


def _inputs(samples: Samples) -> dict[str, Any]:
    """What scoring reads; positions that no loss looks at are skipped by its mask."""
    return {
        "prompts": samples.payload["prompt_ids"],
        "tokens": samples.payload["tokens"],
        "mask": samples.mask | samples.payload["target"],
    }


def _as_scored(fields: Mapping[str, Tensor], samples: Samples) -> Scored:
    auxiliary = {}
    if "supervised" in samples.auxiliary_count:
        auxiliary["supervised"] = -(fields["log_prob"] * samples.payload["target"]).sum(1)
    return Scored(**fields, auxiliary=auxiliary)
