"""The language domain: prompts in, groups of completions out, the same tokens rescored under the live policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, written_texts
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise.config import ConfigError
from groupwise.domain.base import Domain, in_shares
from groupwise.domain.language import chat, data
from groupwise.domain.language import evaluate as evaluate_module
from groupwise.domain.language.config import LanguageConfig
from groupwise.domain.language.evaluate import remarks_of_columns, remarks_of_counts, remarks_of_form
from groupwise.domain.language.policy import LocalPolicy, Policy, open_policy
from groupwise.domain.language.supervised import Corpus, as_samples, encode_demonstration, has_few_letters
from groupwise.domain.protocol import Evaluation, Peers, Prompt, Samples
from groupwise.records import Scored
from groupwise.reward import RewardError, RewardEvent, Rewards, RewardTable
from groupwise.reward.scoring.table import check_columns
from groupwise.streams import Streams
from groupwise.transfer import moved


def scoring_inputs(samples: Samples, requires: frozenset[str]) -> ScoringInputs:
    """Returns the inputs of scoring; positions that no loss reads are skipped by its mask. All members of a batch were
    sampled at one temperature; demonstrations are read at 1.
    """
    payload = samples.payload
    mask = samples.mask | payload["target"]
    temperature = samples.settings.get("temperature", 1.0)
    return ScoringInputs(payload["prompt_ids"], payload["tokens"], mask, requires, temperature)


def as_scored(fields: Mapping[str, Tensor], samples: Samples) -> Scored:
    """Makes the record of scored fields, with the supervised term of demonstrations."""
    auxiliary = {}
    if "supervised" in samples.auxiliary_count:
        auxiliary["supervised"] = -(fields["log_prob"] * samples.payload["target"]).sum(1)
    return Scored(**fields, auxiliary=auxiliary)


# Columns that the domain itself adds for rewards.
_OWN_COLUMNS = ("completion_ids", "max_new_tokens", "num_tokens", "truncated")


class LanguageDomain(Domain):
    """A language policy with its data and rewards; see `groupwise.Domain`.

    Args:
        config: model, data, rewards, sampling, conversation, evaluation.
        streams: the random streams of the run; fresh weights are drawn from it.
        device: where the model lives.
        parent: a domain whose policy is shared, where only other settings changed.
        policy: the policy in place of the one that `config.model` names.
        spreads: whether the weights go to shards.

    Raises:
        ConfigError: data or a model that cannot be used.
        RewardError: a reward that cannot be opened, or that needs a column which the data lack.
    """

    takes_text = True
    unit = "nats per token"
    density = False
    auxiliary = frozenset({"supervised"})
    memory_remedy = (
        "domain.engine.max_members = 8 (answers sampled at once), a smaller domain.sampling.max_new_tokens,"
        " train.gradient_checkpointing = true, train.autocast = bfloat16, or an adapter (domain.model.lora)"
    )

    def __init__(
        self,
        config: LanguageConfig,
        *,
        streams: Streams,
        device: str | torch.device = "cpu",
        parent: LanguageDomain | None = None,
        policy: Policy | None = None,
        spreads: bool = False,
    ) -> None:
        self.config, self._streams = config, streams
        if parent is not None and parent.config.model != config.model:
            raise ConfigError("model: it belongs to the whole run and cannot differ between stages; set it outside")
        same_data = (
            parent is not None
            and parent.config.data == config.data
            and parent.config.demonstrations == config.demonstrations
        )
        splits = parent._splits if parent is not None and same_data else data.split(config.data, config.demonstrations)
        self._splits, self._shares_policy = splits, parent is not None
        if parent is not None:
            self.policy = parent.policy.with_engine(config.engine)
        else:
            device = torch.device(device)
            self.policy = open_policy(config, splits, streams, device, spreads=spreads) if policy is None else policy
        self.learner, self.supplies, self.tokenizer = self.policy.learner, self.policy.supplies, self.policy.tokenizer
        if isinstance(self.policy, LocalPolicy):
            self.module = self.policy.module
        self._environment = config.environment
        self._chat = chat.Chat(
            self.tokenizer, config.chat, () if self._environment is None else self._environment.schemas
        )
        if self._environment is not None and self._chat.tools:
            self._environment = self._environment.for_template(self._chat.template)
        environment_stop = config.environment.stop if config.environment is not None else ()
        self._stop = tuple(dict.fromkeys([*config.sampling.stop, *environment_stop]))
        self._settings = self._sampling({})
        self._reads_turns = chat.reads_turns(self.tokenizer)
        self.rewards = Rewards(config.rewards)
        self._check_columns(splits)
        limit = data.prompt_limit(config, self.policy.max_positions)
        self._train = data.tokenize(splits.train, self._chat, self._environment, limit, config.overlong)
        self._evaluation = {
            name: data.tokenize(
                prompts[: config.evaluation.num_prompts], self._chat, self._environment, limit, config.overlong
            )
            for name, prompts in splits.evaluation.items()
        }
        self.num_prompts = len(self._train.prompts)
        self._ids = dict(self._train.ids)
        for evaluation_set in self._evaluation.values():
            self._ids |= evaluation_set.ids
        for tokenized in (self._train, *self._evaluation.values()):
            engine = self.policy.engine if tokenized is self._train else self.policy.live_engine
            engine.announce_length(max(map(len, tokenized.ids.values()), default=0) + config.longest_completion)

    @property
    def samples_remotely(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True where a server samples from a model in shards."""
        return self.policy.engine.needs_rescoring

    @property
    def sends_weights(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False where another process sends the weights to servers that all of them share."""
        return self.policy.engine.sends_weights

    def send_weights(self, peers: Peers) -> None:
        """Lets the engine send the weights, and proves them with training prompts."""
        if self.policy.engine.has_servers:
            prompts = [self.prompt_ids(prompt) for prompt in self._train.prompts[:64]]
            self.policy.engine.send_weights(prompts, self.config.sampling.max_new_tokens, peers)

    def check_scored(self, samples: Samples) -> None:
        """Lets the engine compare the log-probs of a batch, unless top-p or top-k cut the distribution it sampled from.

        Raises:
            EngineError: a server sampled from other weights.
        """
        is_cut = samples.settings["top_p"] < 1 or samples.settings["top_k"] > 0
        if not is_cut:
            mask, served = samples.mask, samples.behaviour_log_prob
            assert served is not None
            self.policy.engine.check_scored(samples.old_log_prob[mask], served[mask])

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the data: prompts trained on and held out, removed because they are in both, dropped or cut for
        their length.
        """
        return {
            "num_train": len(self._train.prompts),
            "num_held_out": len(self._evaluated_prompts),
            "num_demonstrations": len(self._splits.demonstrations),
            "num_removed": self._splits.num_removed,
            "num_dropped": sum(prompts.num_dropped for prompts in (self._train, *self._evaluation.values())),
            "num_truncated": sum(prompts.num_truncated for prompts in (self._train, *self._evaluation.values())),
        }

    @property
    def _evaluated_prompts(self) -> list[Prompt]:
        return [prompt for prompts in self._evaluation.values() for prompt in prompts.prompts]

    @property
    def remarks(self) -> list[str]:
        """Sentences on the data that were left out or cut, and on the loss of a mixture of experts."""
        limit = data.prompt_limit(self.config, self.policy.max_positions)
        return [
            *remarks_of_counts(self.counts, limit, self.config.data),
            *remarks_of_form(self.rewards.in_form_of_prompts, self._train.prompts),
            *remarks_of_columns(self._train.prompts, _OWN_COLUMNS),
            *chat.unreadable_template(self.tokenizer),
            *self._chat.remarks_of_ends(
                [prompt.columns["prompt"] for prompt in self._train.prompts], self.policy.end_ids
            ),
            *self.policy.remarks,
            *self.rewards.remarks,
            *self.rewards.remarks_of_rows(
                [prompt.columns for prompt in (*self._train.prompts, *self._evaluated_prompts)]
            ),
        ]

    @property
    def trained_on(self) -> frozenset[str]:
        """The identities of the prompts that are trained on, those of demonstrations included, as the source defines
        identity.
        """
        return _identities([*self._splits.train, *(example.prompt for example in self._splits.demonstrations)])

    @property
    def evaluated_on(self) -> frozenset[str]:
        """The prompts that `evaluate` asks."""
        return _identities(self._evaluated_prompts)

    def adapted(self, config: LanguageConfig) -> LanguageDomain:
        """Opens the same model under other settings, for a stage that changes them.

        Raises:
            ConfigError: the model itself differs.
        """
        return self if config == self.config else LanguageDomain(config, streams=self._streams, parent=self)

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Returns training prompts by their place."""
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
        """Samples a group for each prompt; the seed of a member is `streams.seed("sample", step, prompt key, member)`,
        so its text depends on nothing else.
        """
        sampling = self._sampling(settings) if settings else self._settings
        seeds = [streams.seed("sample", step, prompt.key, member) for prompt in prompts for member in range(group_size)]
        return self._complete(prompts, group_size, sampling, seeds, requires)

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Scores members `rows`: fields `[B, T]` at the temperature at which they were sampled;
        `auxiliary["supervised"]` for demonstrations.
        """
        selected, names = samples.select(rows.clamp(min=0)), (requires & self.supplies) | {"log_prob"}
        return as_scored(self.policy.score(scoring_inputs(selected, names)), selected)

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        """Accumulates the gradient where the weights are, given the loss's derivative by every field."""
        selected = samples.select(rows.clamp(min=0))
        field_cotangents = {
            name: value for name, value in cotangents.tensors().items() if not name.startswith("auxiliary.")
        }
        supervised = cotangents.auxiliary.get("supervised")
        if supervised is not None:
            field_cotangents["log_prob"] = (
                field_cotangents["log_prob"] - supervised.unsqueeze(1) * selected.payload["target"]
            )
        names = (frozenset(field_cotangents) & self.supplies) | {"log_prob"}
        fields = self.policy.backward(scoring_inputs(selected, names), field_cotangents)
        return as_scored(fields, selected).detach()

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """Draws `size` demonstrations without replacement within the step; fewer where the corpus is smaller; None
        without a corpus.
        """
        corpus = self._corpus
        if not len(corpus):
            return None
        drawn = streams.numpy("demonstrations", step).choice(len(corpus), size=min(size, len(corpus)), replace=False)
        return as_samples([corpus[int(index)] for index in drawn], self.policy.device)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report: each reward and judge, their sum, length, truncation, `pass@k`."""
        config = self.config.evaluation
        rewards = [*self.config.rewards, *(["environment"] if self.config.environment is not None else [])]
        modes = (("greedy", config.greedy, 1), ("sampled", config.sampled, config.num_samples))
        return tuple(
            name
            for set_name in self._evaluation
            for mode, enabled, num in modes
            if enabled
            for name in evaluate_module.metric_names(_mode(set_name, mode), rewards, num)
        )

    def evaluate(self, *, streams: Streams) -> Evaluation:
        """Evaluates greedy and sampled completions of every evaluation set, with the same random numbers every time."""
        return self._evaluate(streams, None)

    def evaluate_shared(self, *, streams: Streams, peers: Peers) -> Evaluation:
        """Evaluates as `evaluate` does; every process writes and scores the completions of its share of the prompts."""
        return self._evaluate(streams, peers)

    def _evaluate(self, streams: Streams, peers: Peers | None) -> Evaluation:
        config = self.config.evaluation
        training_rewards = [name for name, reward in self.config.rewards.items() if reward.trains]
        first_reward = training_rewards[0] if training_rewards else "environment"
        metrics: dict[str, float] = {}
        records: list[Mapping[str, Any]] = []
        events: list[RewardEvent] = []
        modes = (("greedy", config.greedy, 1), ("sampled", config.sampled, config.num_samples))
        for set_name, evaluation_set in self._evaluation.items():
            for kind, enabled, num_samples in modes:
                if enabled:
                    written = self._write(evaluation_set.prompts, num_samples, streams, peers, greedy=kind == "greedy")
                    mode = _mode(set_name, kind)
                    metrics |= evaluate_module.metrics(mode, written, first_reward)
                    records += evaluate_module.records(mode, written, config.num_texts)
                    events += written.table.events
        return Evaluation(metrics, tuple(records), events=events)

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Describes members for people: prompt, text, tokens (as texts, and as the ids that were forwarded) and
        settings.
        """
        samples = moved(replace(samples.select(rows), recorded=None))
        described, texts = [], self._texts(samples)
        lengths, truncated = samples.payload["length"].tolist(), samples.truncated
        ids = [tokens[:length] for tokens, length in zip(samples.payload["tokens"].tolist(), lengths, strict=True)]
        tokens = chat.token_texts(self.tokenizer, ids)
        for row, group in enumerate(samples.group.tolist()):
            prompt = samples.prompts[group]
            record: dict[str, Any] = {"prompt": prompt.columns["prompt"], "key": prompt.key, "text": texts[row]}
            if "messages" in samples.payload:
                record["messages"] = samples.payload["messages"][row]
            record |= {"tokens": tokens[row], "num_tokens": len(tokens[row])}
            # Texts do not say which tokens they were; a replay of the step needs the ids.
            record |= {"prompt_ids": list(samples.payload["prompt_ids"][row]), "token_ids": ids[row]}
            if "weight_version" in samples.payload:
                record["weight_version"] = samples.payload["weight_version"][row]
            record |= {"truncated": truncated is not None and bool(truncated[row])}
            described.append(record | {"settings": dict(samples.settings)})
        return described

    def conversation(self, turns: Sequence[str]) -> Prompt:
        """Makes a prompt of the messages of a user and an assistant in alternation, for the chat template.

        Args:
            turns: their texts; the last one is the user's.
        """
        messages = [{"role": ("user", "assistant")[place % 2], "content": turn} for place, turn in enumerate(turns)]
        return Prompt(json.dumps(messages, ensure_ascii=False), {"prompt": messages})

    @property
    def vocabulary(self) -> str:
        """A hash of the words of the tokenizer and their numbers."""
        content = json.dumps(sorted(self.tokenizer.get_vocab().items()))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes the policy; a local one as a plain transformers folder."""
        self.policy.save(folder)

    def close(self) -> None:
        """Ends the rewards' threads and processes, and the policy's learner unless another domain opened it."""
        self.rewards.close()
        self.policy.close()
        if not self._shares_policy:
            self.policy.learner.close()

    @cached_property
    def _corpus(self) -> Corpus:
        ends, stop, limit = self.policy.end_ids, self._stop, self.policy.max_positions
        num_special = self.tokenizer.num_special_tokens_to_add()
        is_plain = self._environment is None and self.config.chat.use != "always"
        return Corpus(
            self._splits.demonstrations,
            lambda demonstration: encode_demonstration(demonstration, self._chat, self._environment, ends, stop, limit),
            lambda demonstration: not (is_plain and has_few_letters(demonstration, limit, num_special)),
        )

    def _sampling(self, settings: Mapping[str, float], greedy: bool = False) -> SamplingConfig:
        integer_settings = {"top_k", "max_new_tokens", "max_turn_tokens"}
        overrides = {name: int(value) if name in integer_settings else float(value) for name, value in settings.items()}
        return SamplingConfig.model_validate(
            {**self.config.sampling.model_dump(), **overrides, "stop": self._stop, "greedy": greedy}
        )

    def _complete(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        requires: frozenset[str],
        *,
        live: bool = False,
    ) -> Samples:
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        ids_of_members = [prompt_ids for prompt_ids in ids for _ in range(group_size)]
        conversations = None
        if self._environment is not None:
            columns = [prompt.columns for prompt in prompts for _ in range(group_size)]
            limit = sampling.max_new_tokens
            conversations = chat.Conversations(
                self._environment, columns, self._chat, self.policy.end_ids, limit, ids_of_members
            )
        batch = GroupBatch(ids, group_size, sampling, seeds, (requires & self.supplies) | {"log_prob"})
        if conversations is not None:
            batch = replace(batch, continue_with=conversations.answer, begin_again=conversations.begin)
        completions = self.policy.sample(batch, live=live)
        payload: dict[str, Any] = {
            "prompt_ids": ids_of_members,
            "tokens": completions.tokens,
            "target": torch.zeros_like(completions.mask),
            "length": completions.length,
            "limit": torch.full((len(seeds),), sampling.max_new_tokens, device=completions.tokens.device),
        }
        if completions.weight_version is not None:
            payload["weight_version"] = [completions.weight_version] * len(seeds)
        if conversations is not None:
            conversations.add_cut_off(completions.tokens, completions.length)
            payload |= {"messages": conversations.completions, "environment": conversations.rewards}
            payload |= {"environment_counts": conversations.counts}
        settings = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": float(sampling.top_k)}
        if num_cut := self._train.num_truncated:
            settings["truncated_prompts"] = num_cut / self.num_prompts
        return Samples(
            prompts=list(prompts),
            group=torch.arange(len(prompts), device=completions.tokens.device).repeat_interleave(group_size),
            mask=completions.mask,
            old_log_prob=completions.log_prob,
            behaviour_log_prob=completions.behaviour_log_prob,
            recorded=Scored(completions.log_prob, entropy=completions.entropy, score_norm=completions.score_norm),
            truncated=completions.truncated,
            payload=payload,
            settings=settings,
            numbers=completions.numbers,
        )

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Returns the tokens that the policy continues."""
        if prompt.key not in self._ids:
            # A prompt that is not part of the data, such as one typed at `groupwise sample`.
            limit = data.prompt_limit(self.config, self.policy.max_positions)
            self._ids |= data.tokenize([prompt], self._chat, self._environment, limit, "error").ids
        return self._ids[prompt.key]

    def _texts(self, samples: Samples) -> list[str]:
        """Decodes the completion of every member, without the tokens that end it."""
        rows = zip(samples.payload["tokens"].tolist(), samples.payload["length"].tolist(), strict=True)
        return written_texts(self.tokenizer, [tokens[:length] for tokens, length in rows], self.policy.end_ids)

    def reward(self, samples: Samples, *, judges: bool = False) -> RewardTable:
        """Computes every reward of every member, and adds the environment's, which sampling recorded, as `environment`.

        Args:
            judges: whether rewards in the role of a judge, which count in evaluations alone, are scored too.
        """
        samples = moved(replace(samples, recorded=None))
        member_columns = [samples.prompts[index].columns for index in samples.group.tolist()]
        names = (
            set.intersection(*(set(columns) for columns in member_columns)) - {"prompt"} if member_columns else set()
        )
        columns: dict[str, list[Any]] = {
            name: [prompt_columns[name] for prompt_columns in member_columns] for name in sorted(names)
        }
        columns["num_tokens"] = samples.payload["length"].tolist()
        columns["max_new_tokens"] = samples.payload["limit"].tolist()
        columns["completion_ids"] = [
            tokens[:length]
            for tokens, length in zip(samples.payload["tokens"].tolist(), columns["num_tokens"], strict=True)
        ]
        columns["truncated"] = [False] * len(samples) if samples.truncated is None else samples.truncated.tolist()
        completions = samples.payload.get("messages") or self._texts(samples)
        if self._reads_turns and "messages" not in samples.payload:
            completions = chat.read_texts(self.tokenizer, samples, completions)
        table = self.rewards.score(
            [prompt_columns["prompt"] for prompt_columns in member_columns], completions, columns, judges=judges
        )
        if self.config.environment is None:
            return table
        earned = list(samples.payload["environment"])
        # A missing reward would leave its member out, as for a function that failed. Here nothing failed.
        if any(table.weights.values()):
            earned = [0.0 if reward is None else reward for reward in earned]
        values = {"environment": earned, **table.values}
        weights = {"environment": self.config.environment.weight, **table.weights}
        member_counts = samples.payload["environment_counts"]
        names = dict.fromkeys(name for counts in member_counts for name in counts)
        counts = {name: [counts.get(name, 0.0) for counts in member_counts] for name in names}
        return replace(table, values=values, weights=weights, logged={**table.logged, **counts})

    def _write(
        self, prompts: Sequence[Prompt], num_samples: int, streams: Streams, peers: Peers | None, *, greedy: bool
    ) -> evaluate_module.Written:
        """Writes completions for the prompts; each process writes those of its share."""
        shares = in_shares(prompts, peers, lambda part: self._write_share(part, num_samples, streams, greedy=greedy))
        return evaluate_module.Written(
            prompts,
            num_samples,
            RewardTable.concatenate([written.table for written in shares]),
            [text for written in shares for text in written.texts],
            [length for written in shares for length in written.lengths],
            [truncated for written in shares for truncated in written.truncated],
        )

    def _write_share(
        self, prompts: Sequence[Prompt], num_samples: int, streams: Streams, *, greedy: bool
    ) -> evaluate_module.Written:
        seeds = [streams.seed("evaluate", prompt.key, number) for prompt in prompts for number in range(num_samples)]
        samples = self._complete(
            prompts,
            num_samples,
            self._sampling({}, greedy=greedy),
            seeds,
            frozenset({"log_prob"}),
            live=True,
        )
        texts = self._texts(samples)
        truncated = [] if samples.truncated is None else samples.truncated.tolist()
        return evaluate_module.Written(
            prompts,
            num_samples,
            self.reward(samples, judges=True),
            texts,
            samples.payload["length"].tolist(),
            truncated,
        )

    def _check_columns(self, splits: data.Splits) -> None:
        present = [*((set(splits.train[0].columns) - {"prompt"}) if splits.train else ()), *_OWN_COLUMNS]
        self.rewards.check_columns(present)
        for name, prompts in splits.evaluation.items():
            try:
                if prompts:
                    self.rewards.check_columns([*(set(prompts[0].columns) - {"prompt"}), *_OWN_COLUMNS])
            except RewardError as error:
                place = f"data.evaluation.{name}" if name else "the prompts that are evaluated"
                raise ConfigError(f"{place}: {error}") from None
        if self.config.environment is not None:
            check_columns("environment", self.config.environment.needs, present)


def _mode(set_name: str, kind: str) -> str:
    """Names an evaluation: `greedy` or `sampled`, after the name of the set if it has one."""
    return f"{set_name}/{kind}" if set_name else kind


def _identities(prompts: Sequence[Prompt]) -> frozenset[str]:
    """Collects the prompts' keys without the number that distinguishes repeated prompts."""
    return frozenset(prompt.key.partition("-")[0] for prompt in prompts)
