"""The selection domain: it draws groups of ordered choices out of the pools of queries, and scores the same picks again
under the live policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Prompt, Samples, Table
from groupwise.records import Scored
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.completions import Content
from groupwise.streams import Streams
from groupwise.transfer import moved
from groupwise_selection import evaluate
from groupwise_selection.config import SelectionConfig
from groupwise_selection.evaluate import Setting, baseline_tables, exported_table, pooled, selected_choices
from groupwise_selection.example import Query, Questions
from groupwise_selection.export import selector_of, store
from groupwise_selection.measurement import Measures, QueryTable
from groupwise_selection.member_rewards import COLUMNS, MemberRewards, measured_prefixes
from groupwise_selection.policy.choices import Choices, draw_choices, sample_choices, scored_fields
from groupwise_selection.policy.network import PointerNetwork, as_files, open_policy, save
from groupwise_selection.rce import CandidateSource
from groupwise_selection.replay import Replay, chosen
from groupwise_selection.reward.adaptive_weights import ShotCost
from groupwise_selection.selector import SELECTOR, Selector
from groupwise_selection.source.base import check, distinct_pools
from groupwise_selection.task_model.cache import CachedTaskModel

_EVALUATION_BATCH = 256
_NUM_SHOWN = 8
"""Held-out queries that are recorded with their demonstrations."""


@final
class SelectionDomain(Domain):
    """A pointer network with its questions, task model and rewards; see `groupwise.Domain`.

    Args:
        config: policy, questions, task model, rewards, evaluation.
        streams: random streams of the run; fresh weights are drawn from them.
        device: device of the policy and the task model.
        parent: a domain whose policy, questions and task model are shared, where only other settings changed.

    Raises:
        ConfigError: the questions allow no selection, or the policy does not fit them.
        RewardError: a reward cannot be opened, or needs a column that does not exist.
    """

    module: PointerNetwork
    density = False
    unit = "nats per pick"
    memory_remedy = "a smaller train.prompts_per_step or train.group_size, or a smaller task model"
    supplies = frozenset({"log_prob", "entropy", "score_norm", "exact_divergence"})

    def __init__(
        self,
        config: SelectionConfig,
        *,
        streams: Streams,
        device: str | torch.device = "cpu",
        parent: SelectionDomain | None = None,
    ) -> None:
        self.config, self._streams, self._device = config, streams, torch.device(device)
        if parent is not None and (parent.config.model, parent.config.stop) != (config.model, config.stop):
            raise ConfigError(
                "model: it belongs to the whole run and cannot differ between stages, nor can stop; set it outside"
            )
        same_questions = parent is not None and (parent.config.source, parent.config.shots) == (
            config.source,
            config.shots,
        )
        self._questions: Questions = parent._questions if parent is not None and same_questions else _read(config)
        embedding_size = len(self._questions.train[0].embedding)
        self.module = (
            open_policy(config.model, embedding_size, config.stop, streams, self._device)
            if parent is None
            else parent.module
        )
        questions = self._questions
        if parent is not None and same_questions:
            self._table = parent._table
        else:
            queries = [*questions.train, *questions.validation, *questions.held_out]
            self._table = QueryTable(
                queries, self.module.config.answer_size, self._device, next(self.module.parameters()).dtype
            )
        if parent is not None and parent.config.task_model == config.task_model:
            self._task_model = parent._task_model
        else:
            self._task_model = config.task_model.open(str(device))
        self._measures = Measures(self._task_model, config.accuracy, config.answers)
        self.rewards = Rewards(config.rewards)
        self.rewards.check_columns(COLUMNS)
        self._member_rewards = MemberRewards(self.rewards, config.prefix)
        self._candidates = None
        if config.rce is not None:
            self._candidates = CandidateSource(
                config, questions.train, self._table, self.module, self._measures, self._member_rewards
            )
            self.auxiliary = frozenset({"supervised"})
        self._replay, self._train = None, questions.train
        if config.candidates is not None:
            self._replay = Replay(config.candidates, config, questions.train, self.rewards)
            self._train, self.samples_recorded = self._replay.queries, True

    @property
    def num_prompts(self) -> int:
        return len(self._train)

    @property
    def remarks(self) -> list[str]:
        """Sentences on questions, candidates and rewards that were left out or changed."""
        candidates = [] if self._candidates is None else self._candidates.remarks
        replayed = [] if self._replay is None else [*self._replay.remarks, self._replay.ratio_remark]
        return list(dict.fromkeys([*self._questions.remarks, *candidates, *replayed, *self.rewards.remarks]))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report."""
        validation = self.config.evaluation.validation
        return tuple(evaluate.metric_names(self.config.shots, list(self.config.rewards), validation))

    @property
    def trained_on(self) -> frozenset[str]:
        """The contents of the training queries."""
        return frozenset(query.content for query in self._train)

    @property
    def evaluated_on(self) -> frozenset[str]:
        """The contents of the queries that `evaluate` measures."""
        return frozenset(query.content for query in self._questions.held_out)

    def adapted(self, config: SelectionConfig) -> SelectionDomain:
        """Returns the same policy under other settings, for a stage that changes them.

        Raises:
            ConfigError: the policy differs.
        """
        if config == self.config:
            return self
        return SelectionDomain(config, streams=self._streams, parent=self, device=self._device)

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Returns training queries by their place."""
        return [_prompt(self._train[index]) for index in indices]

    @torch.no_grad()
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
        """Draws a group for each query; the random numbers of a member are keyed by `("select", step, query, member)`
        and depend on nothing else.

        Settings are `temperature`, and `top_k = 1` for the most probable picks. With `domain.candidates`, a group is
        the query's recorded candidates, `group_size` of them at random where there are more.
        """
        shots, temperature = self.config.shots, settings.get("temperature", self.config.temperature)
        if self._replay is not None:
            return self._replayed(self._replay, prompts, group_size, temperature, streams, step)
        query_numbers = torch.tensor([self._number(prompt) for prompt in prompts], device=self._device)
        group = torch.arange(len(prompts), device=self._device).repeat_interleave(group_size)
        generators = [
            streams.generator("select", step, prompt.key, member) for prompt in prompts for member in range(group_size)
        ]
        greedy, num_shots = settings.get("top_k", 0) == 1, None
        if self.config.random_shots and not greedy:
            num_shots = [int(streams.numpy("shots", step, prompt.key).integers(1, shots + 1)) for prompt in prompts]
        choices = sample_choices(
            self.module,
            self._table.pools(query_numbers),
            shots,
            temperature,
            generators,
            greedy=greedy,
            num_shots=num_shots,
        )
        scored = scored_fields(choices, requires - {"exact_divergence"})
        queries = [self._table.queries[place] for place in query_numbers[group].tolist()]
        measurements = measured_prefixes(
            self._measures, queries, choices, self.config.order, every=self.config.prefix is not None
        )
        return Samples(
            prompts=list(prompts),
            group=group,
            mask=choices.mask,
            old_log_prob=scored["log_prob"],
            recorded=Scored.from_tensors(scored),
            payload={
                "query": query_numbers[group],
                "picks": choices.picks,
                "temperature": torch.full_like(group, temperature, dtype=torch.float64),
                "measured": measurements,
            },
            settings={"temperature": temperature},
        )

    def _replayed(
        self,
        replay: Replay,
        prompts: Sequence[Prompt],
        group_size: int,
        temperature: float,
        streams: Streams,
        step: int,
    ) -> Samples:
        rows: list[tuple[Query, int]] = []
        group: list[int] = []
        for number, prompt in enumerate(prompts):
            query = self._table.queries[self._number(prompt)]
            order = streams.numpy("recorded", step, prompt.key).permutation(len(replay.candidates[query.id]))
            rows += [(query, place) for place in order[:group_size].tolist()]
            group += [number] * min(group_size, len(order))
        picks, drawn = (tensor.to(self._device) for tensor in replay.decisions(rows))
        return Samples(
            prompts=list(prompts),
            group=torch.tensor(group, device=self._device),
            mask=picks >= 0,
            old_log_prob=drawn.to(next(self.module.parameters()).dtype),
            payload={
                "query": torch.tensor([self._table.number[query.id] for query, _ in rows], device=self._device),
                "picks": picks,
                "temperature": torch.full((len(rows),), temperature, dtype=torch.float64, device=self._device),
                "candidate": [place for _, place in rows],
            },
            settings={"temperature": temperature},
        )

    @torch.no_grad()
    def with_reference(self, samples: Samples) -> Samples:
        """Adds the distributions of the active policy at every decision; see `ComparesExactly`."""
        choices = self._rescored(samples)
        payload, recorded = {**samples.payload, "reference_log_probs": choices.log_probs}, samples.recorded
        keeps = recorded is not None and recorded.exact_divergence is not None
        return replace(samples, payload=payload, recorded=recorded if keeps else None)

    def reward(self, samples: Samples) -> RewardTable:
        """Computes every reward of every member; with `prefix`, of every pick."""
        queries = [self._table.queries[place] for place in samples.payload["query"].tolist()]
        if self._replay is not None:
            rows = list(zip(queries, samples.payload["candidate"], strict=True))
            table, picks = self._replay.reward(rows), self._replay.picks(rows).clamp(min=-1).tolist()
        else:
            table = self._member_rewards.reward(queries, samples.payload["measured"], samples.mask, judges=False)
            picks = samples.payload["picks"].masked_fill(~samples.mask, -1).tolist()
        table = replace(table, contents=[Content.of(",".join(map(str, row))) for row in picks])
        # The reward does not know the number of shots, so the domain states the range of the costs.
        costs = {
            name: (-float(max(2, self.config.shots)), -1.0)
            for name, reward in self.config.rewards.items()
            if isinstance(reward, ShotCost)
        }
        return replace(table, bounds={**table.bounds, **costs}) if costs else table

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Computes the fields `[B, T]` of members `rows`, each at its sampling temperature."""
        members = samples.select(rows.clamp(min=0))
        scored = scored_fields(self._rescored(members), requires, members.payload.get("reference_log_probs"))
        if "weight" in members.payload:
            loss = -members.payload["weight"] * scored["log_prob"].double().sum(1)
            return Scored(scored["log_prob"], auxiliary={"supervised": loss})
        return Scored.from_tensors(scored)

    @torch.no_grad()
    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """Draws candidates of some queries with their weights, at most `size` together (of one query at least); returns
        None without `rce`.
        """
        return None if self._candidates is None else self._candidates.draw(size, streams, step)

    @torch.no_grad()
    def evaluate(self, *, streams: Streams) -> Evaluation:
        """Evaluates the policy's most probable picks for every held-out query, measured after each pick."""
        held_out = self._questions.held_out
        if not self.config.evaluation.shared_pool and not distinct_pools(held_out):
            raise ConfigError(
                f"source: all {len(held_out)} held-out queries have one and the same pool, where a fixed list may do as"
                " well as a policy; give each its own, or write evaluation.shared_pool = true"
            )
        choices, measurements = self._greedy(held_out)
        table = self._member_rewards.reward(held_out, measurements, choices.mask, judges=True)
        metrics = evaluate.metrics("selected", measurements, table)
        records = evaluate.records(held_out, choices, measurements, table, self.config.order, _NUM_SHOWN)
        if self.config.evaluation.validation and self._questions.validation:
            metrics |= evaluate.metrics("validation", self._greedy(self._questions.validation)[1], None)
        return Evaluation(metrics, tuple(records), events=table.events)

    @torch.no_grad()
    def tables(self, *, streams: Streams) -> list[Table]:
        """Compares the policy's most probable picks with every baseline, for every number of demonstrations."""
        if not self.config.evaluation.tables:
            return []
        held_out = self._questions.held_out
        _, measurements = self._greedy(held_out)
        policy_accuracy = np.array([evaluate.accuracies(row, self.config.shots) for row in measurements])
        table, weights = as_files(self.module, task_model=self._task_model.fingerprint())
        examples = store(self.config, self._questions, "held_out")
        selector = selector_of(self.config, self._questions, table, weights, examples)
        accuracy_table, lead_table = baseline_tables(self._setting(), policy_accuracy, selector)
        if isinstance(self._task_model, CachedTaskModel):
            accuracy_table = replace(accuracy_table, notes=[*accuracy_table.notes, self._task_model.report()])
        return [accuracy_table, lead_table]

    @torch.no_grad()
    def deployed(self, folder: Path) -> tuple[Evaluation, list[Table]] | None:
        """Measures a folder of `groupwise export` in use: queries choose among the nearest of its examples. Returns
        None for other folders.

        Raises:
            ConfigError: the folder is damaged, or was changed since it was saved.
        """
        if not (folder / SELECTOR).is_file():
            return None
        selector = Selector.load(folder)
        pooled_queries = pooled(selector, self._questions.held_out)
        picked = selected_choices(selector, pooled_queries)
        measurements = measured_prefixes(self._measures, pooled_queries, picked, selector.trained.order)
        rewards = self._member_rewards.reward(pooled_queries, measurements, picked.mask, judges=True)
        records = evaluate.records(pooled_queries, picked, measurements, rewards, selector.trained.order, _NUM_SHOWN)
        evaluation = Evaluation(
            evaluate.metrics("exported", measurements, rewards), tuple(records), events=rewards.events
        )
        table = exported_table(self._setting(), selector)
        if selector.trained.task_model != self._task_model.fingerprint():
            table = replace(
                table,
                notes=[*table.notes, "The policy was trained for another task model than the one that answered here."],
            )
        return evaluation, [table]

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Describes members for people: the question, its demonstrations, and the task model's answer."""
        read = moved({name: samples.payload[name][rows] for name in ("query", "picks")})
        queries = [self._table.queries[number] for number in read["query"].tolist()]
        if self._replay is not None:
            candidates = [samples.payload["candidate"][row] for row in rows.tolist()]
            members = list(zip(queries, candidates, strict=True))
            return [
                evaluate.described(query, own.tolist(), [], self.config.order)
                | {"recorded": dict(self._replay.candidates[query.id][place].fields)}
                for (query, place), own in zip(members, self._replay.picks(members), strict=True)
            ]
        measured = samples.payload["measured"]
        return [
            evaluate.described(query, picks, measured[row], self.config.order)
            for row, query, picks in zip(rows.tolist(), queries, read["picks"].tolist(), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Writes the weights as safetensors, and `policy.json` with the sizes and the order."""
        trained = {"shots": self.config.shots, "order": self.config.order}
        save(self.module, folder, **trained, task_model=self._task_model.fingerprint())

    def close(self) -> None:
        """Ends the rewards' threads and processes."""
        self.rewards.close()

    def _setting(self) -> Setting:
        return Setting(self._measures, self._questions, self.config.shots, self.config.order, self.config.evaluation)

    def _number(self, prompt: Prompt) -> int:
        if prompt.key not in self._table.number:
            # A question typed by hand has no key of the source, but may repeat the text of one.
            for number, query in enumerate(self._table.queries):
                if query.question == prompt.columns.get("prompt"):
                    return number
            raise ConfigError(
                f"prompt {prompt.key!r} is no query of the source; leave --prompt out, and queries of the source are"
                " shown"
            )
        return self._table.number[prompt.key]

    def _rescored(self, samples: Samples) -> Choices:
        """Scores the same picks under the active policy; each query is encoded once."""
        queries, row = samples.payload["query"].unique(return_inverse=True)
        encoded, picks = self.module.encode(self._table.pools(queries)), samples.payload["picks"]
        if self._replay is not None and self._replay.renormalised and "weight" not in samples.payload:
            asked = [self._table.queries[number] for number in queries.tolist()]
            temperature = float(samples.payload["temperature"][0])
            return chosen(self._replay.over_candidates(self.module, encoded, asked, temperature)[row], picks)
        encoded = encoded.of(row)
        return draw_choices(self.module, encoded, picks.shape[1], None, samples.payload["temperature"], force=picks)

    def _greedy(self, queries: Sequence[Query]) -> tuple[Choices, list[list[Any]]]:
        """Returns the most probable picks, and the measurements after each pick."""
        batches = []
        for start in range(0, len(queries), _EVALUATION_BATCH):
            batch = queries[start : start + _EVALUATION_BATCH]
            numbers = torch.tensor([self._table.number[query.id] for query in batch], device=self._device)
            encoded = self.module.encode(self._table.pools(numbers))
            temperatures = torch.ones(len(batch), dtype=torch.float64, device=self._device)
            batches.append(draw_choices(self.module, encoded, self.config.shots, None, temperatures))
        names = ("picks", "mask", "log_probs")
        choices = Choices(*(torch.cat([getattr(batch, name) for batch in batches]) for name in names))
        return choices, measured_prefixes(self._measures, queries, choices, self.config.order)


def _read(config: SelectionConfig) -> Questions:
    questions = config.source.read()
    check(questions, config.shots, config.answers)
    return questions


def _prompt(query: Query) -> Prompt:
    return Prompt(query.id, {"prompt": query.question, "answers": list(query.answers)})
