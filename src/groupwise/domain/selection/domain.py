"""The selection domain: queries with their pools in, groups of ordered choices out, the same picks scored again under
the live policy.
"""

from __future__ import annotations

import hashlib
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
from groupwise.domain.selection import evaluate
from groupwise.domain.selection.baseline_tables import Setting, baseline_tables, used_table
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.example import Query, Questions
from groupwise.domain.selection.export import selector_of
from groupwise.domain.selection.measurement import Measures
from groupwise.domain.selection.member_rewards import COLUMNS, Rewarding
from groupwise.domain.selection.policy import loading
from groupwise.domain.selection.policy.choices import Choices, draw_choices, scored_fields
from groupwise.domain.selection.policy.network import PointerNetwork
from groupwise.domain.selection.query_table import QueryTable
from groupwise.domain.selection.rce import CandidateSource
from groupwise.domain.selection.reward.shot_cost import ShotCost
from groupwise.domain.selection.selector import SELECTOR, Selector
from groupwise.domain.selection.selector_evaluation import pooled, selected_choices
from groupwise.domain.selection.source.base import check, distinct_pools
from groupwise.domain.selection.store import store
from groupwise.domain.selection.task_model.cache import CachedTaskModel
from groupwise.learner.hashing import hash_weights
from groupwise.records import Scored
from groupwise.reward import Rewards, RewardTable
from groupwise.streams import Streams

_AT_ONCE = 256


@final
class SelectionDomain(Domain):
    """A pointer network with its questions, task model and rewards; see `groupwise.Domain`.

    Args:
        config: policy, questions, task model, rewards, evaluation.
        streams: of the run; fresh weights are drawn from it.
        device: where the policy and the task model live.
        parent: a domain whose policy, questions and task model are shared, where only other settings changed.

    Raises:
        ConfigError: questions that cannot be selected from, or a policy that does not fit them.
        RewardError: a reward that cannot be opened, or that needs a column which is not there.
    """

    module: PointerNetwork
    density = False
    unit = "nats per pick"
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
        same = parent is not None and (parent.config.source, parent.config.shots) == (config.source, config.shots)
        self._questions: Questions = parent._questions if parent is not None and same else _read(config)
        embedding_size = len(self._questions.train[0].embedding)
        self.module = (
            loading.open_policy(config.model, embedding_size, config.stop, streams, self._device)
            if parent is None
            else parent.module
        )
        self._loaded = hash_weights(self.module) if parent is None else parent._loaded
        questions = self._questions
        if parent is not None and same:
            self._table = parent._table
        else:
            everything = [*questions.train, *questions.validation, *questions.held_out]
            self._table = QueryTable(
                everything, self.module.config.answer_size, self._device, next(self.module.parameters()).dtype
            )
        if parent is not None and parent.config.task_model == config.task_model:
            self._task_model = parent._task_model
        else:
            self._task_model = config.task_model.open(str(device))
        self._measures = Measures(self._task_model, config.accuracy)
        self.rewards = Rewards(config.rewards)
        self.rewards.check_columns(COLUMNS)
        self._rewarding = Rewarding(self.rewards, config.prefix)
        train = self._questions.train
        self._candidates = (
            None
            if config.rce is None
            else CandidateSource(config, train, self._table, self.module, self._measures, self._rewarding)
        )
        self.auxiliary = frozenset() if config.rce is None else frozenset({"supervised"})

    @property
    def num_prompts(self) -> int:
        return len(self._questions.train)

    @property
    def remarks(self) -> list[str]:
        """What was left out of the questions."""
        return [
            *self._questions.remarks,
            *([] if self._candidates is None else self._candidates.remarks),
            *self.rewards.remarks,
        ]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report."""
        return tuple(
            evaluate.metric_names(self.config.shots, list(self.config.rewards), self.config.evaluation.validation)
        )

    @property
    def trained_on(self) -> frozenset[str]:
        """What the training queries ask."""
        return frozenset(query.content for query in self._questions.train)

    @property
    def evaluated_on(self) -> frozenset[str]:
        """What the queries that `evaluate` measures ask."""
        return frozenset(query.content for query in self._questions.held_out)

    def adapted(self, config: SelectionConfig) -> SelectionDomain:
        """The same policy under other settings, for a stage that changes them.

        Raises:
            ConfigError: the policy itself differs.
        """
        return (
            self
            if config == self.config
            else SelectionDomain(config, streams=self._streams, parent=self, device=self._device)
        )

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Training queries by their place."""
        return [_prompt(self._questions.train[index]) for index in indices]

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
        """A group for each query; what chance decides of a member is keyed by `("select", step, query, member)` and
        depends on nothing else.

        Settings are `temperature`, and `top_k = 1` for the most probable picks.
        """
        shots, temperature = self.config.shots, settings.get("temperature", self.config.temperature)
        number = torch.tensor([self._number(prompt) for prompt in prompts], device=self._device)
        group = torch.arange(len(prompts), device=self._device).repeat_interleave(group_size)
        generators = [
            streams.generator("select", step, prompt.key, member) for prompt in prompts for member in range(group_size)
        ]
        uniform = torch.stack([torch.rand(shots, generator=each, dtype=torch.float64) for each in generators]).to(
            self._device
        )
        heat = torch.full((len(group),), temperature, dtype=torch.float64, device=self._device)
        greedy = settings.get("top_k", 0) == 1
        choices = draw_choices(
            self.module,
            self.module.encode(self._table.pools(number)).of(group),
            shots,
            None if greedy else uniform,
            heat,
        )
        if self.config.random_shots and not greedy:
            asked = [int(streams.numpy("shots", step, prompt.key).integers(1, shots + 1)) for prompt in prompts]
            choices = choices.first(torch.tensor(asked, device=self._device)[group])
        found = scored_fields(choices, requires - {"exact_divergence"})
        queries = [self._table.queries[place] for place in number[group].tolist()]
        measured = self._rewarding.measure(
            self._measures, queries, choices, self.config.order, every=self.config.prefix is not None
        )
        return Samples(
            prompts=list(prompts),
            group=group,
            mask=choices.mask,
            old_log_prob=found["log_prob"],
            recorded=Scored.from_tensors(found),
            payload={"query": number[group], "picks": choices.picks, "temperature": heat, "measured": measured},
            settings={"temperature": temperature},
        )

    @torch.no_grad()
    def with_reference(self, samples: Samples) -> Samples:
        """The distributions of the policy that is active now at every decision; see `ComparesExactly`."""
        choices = self._again(samples)
        recorded = samples.recorded
        payload = {**samples.payload, "reference_log_probs": choices.log_probs}
        return replace(
            samples,
            payload=payload,
            recorded=None if recorded is None or recorded.exact_divergence is None else recorded,
        )

    def reward(self, samples: Samples) -> RewardTable:
        """Every reward of every member; with `prefix`, of every pick."""
        queries = [self._table.queries[place] for place in samples.payload["query"].tolist()]
        table = self._rewarding.reward(queries, samples.payload["measured"], samples.mask, judges=False)
        # What examples can cost is the domain's to say: from one of them to all.
        costs = {
            name: (-float(max(2, self.config.shots)), -1.0)
            for name, reward in self.config.rewards.items()
            if isinstance(reward, ShotCost)
        }
        return replace(table, bounds={**table.bounds, **costs}) if costs else table

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Fields `[B, T]` of members `rows` at the temperature each was sampled at."""
        chosen = samples.select(rows.clamp(min=0))
        found = scored_fields(self._again(chosen), requires, chosen.payload.get("reference_log_probs"))
        if "weight" in chosen.payload:
            return Scored(
                found["log_prob"],
                auxiliary={"supervised": -chosen.payload["weight"] * found["log_prob"].double().sum(1)},
            )
        return Scored.from_tensors(found)

    @torch.no_grad()
    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """Candidates of some queries with their weights, at most `size` together (of one query at least); None without
        `rce`.
        """
        return None if self._candidates is None else self._candidates.draw(size, streams, step)

    @torch.no_grad()
    def evaluate(self, *, streams: Streams) -> Evaluation:
        """The policy's most probable picks for every held-out query, measured after each pick."""
        held_out = self._questions.held_out
        if not self.config.evaluation.shared_pool and not distinct_pools(held_out):
            raise ConfigError(
                f"source: all {len(held_out)} held-out queries have one and the same pool, where a fixed list may do as"
                " well as a policy; give each its own, or write evaluation.shared_pool = true"
            )
        choices, measured = self._greedy(held_out)
        table = self._rewarding.reward(held_out, measured, choices.mask, judges=True)
        metrics = evaluate.metrics("selected", measured, table)
        records = evaluate.records(
            held_out, choices, measured, table, self.config.order, self.config.evaluation.num_shown
        )
        if self.config.evaluation.validation and self._questions.validation:
            metrics |= evaluate.metrics("validation", self._greedy(self._questions.validation)[1], None)
        return Evaluation(metrics, tuple(records), events=table.events)

    @torch.no_grad()
    def tables(self, *, streams: Streams) -> list[Table]:
        """The policy's most probable picks beside every baseline, for every number of demonstrations."""
        if not self.config.evaluation.tables:
            return []
        held_out = self._questions.held_out
        _, measured = self._greedy(held_out)
        names = [f"accuracy_{size}" for size in range(1, self.config.shots + 1)]
        own = np.array([[found[name] for name in names] for found in (evaluate.per_query(each) for each in measured)])
        setting = self._setting()
        table, weights = loading.as_files(self.module, task_model=self._task_model.fingerprint())
        first, *others = baseline_tables(
            setting,
            own,
            selector_of(self.config, self._questions, table, weights, store(self.config, self._questions, "held_out")),
        )
        kept = self._task_model.report() if isinstance(self._task_model, CachedTaskModel) else None
        return [first if kept is None else replace(first, notes=[*first.notes, kept]), *others]

    @torch.no_grad()
    def deployed(self, folder: Path) -> tuple[Evaluation, list[Table]] | None:
        """A folder of `groupwise export`, measured as it is used: queries choose among the nearest of its examples.
        None for other folders.

        Args:
            folder: a model folder.

        Raises:
            ConfigError: a folder that is damaged, or was changed since it was saved.
        """
        if not (folder / SELECTOR).is_file():
            return None
        selector = Selector.load(folder)
        asked = pooled(selector, self._questions.held_out)
        picked = selected_choices(selector, asked)
        measured = self._rewarding.measure(self._measures, asked, picked, selector.trained.order, every=True)
        rewards = self._rewarding.reward(asked, measured, picked.mask, judges=True)
        records = evaluate.records(
            asked, picked, measured, rewards, selector.trained.order, self.config.evaluation.num_shown
        )
        found = Evaluation(evaluate.metrics("exported", measured, rewards), tuple(records), events=rewards.events)
        table = used_table(self._setting(), selector)
        if selector.trained.task_model != self._task_model.fingerprint():
            table = replace(
                table,
                notes=[*table.notes, "The policy was trained for another task model than the one that answered here."],
            )
        return found, [table]

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """The question, what was shown for it, and what the task model answered, for people."""
        found = []
        for row in rows.tolist():
            query = self._table.queries[int(samples.payload["query"][row])]
            found.append(
                evaluate.described(
                    query, samples.payload["picks"][row].tolist(), samples.payload["measured"][row], self.config.order
                )
            )
        return found

    def fingerprint(self) -> str:
        """Hash of the policy as it was loaded, the questions and the task model."""
        found = hashlib.blake2b(digest_size=16)
        found.update(self._loaded.encode())
        found.update(self._task_model.fingerprint().encode())
        found.update(repr((self.config.shots, self.config.stop, self.config.order, self.config.accuracy)).encode())
        # A warm-up on candidates depends on what they earn.
        found.update(
            b""
            if self.config.rce is None
            else self.config.model_dump_json(include={"rce", "rewards", "prefix", "random_shots"}).encode()
        )
        found.update(b"" if self._candidates is None else self._candidates.fingerprint().encode())
        for query in self._questions.train:
            found.update(
                "\x1f".join(
                    [query.id, query.question, *query.answers, *(f"{each.id}\x1e{each.answer}" for each in query.pool)]
                ).encode()
            )
            found.update(query.embedding.tobytes())
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Weights as safetensors; `policy.json` beside them says the sizes and the order."""
        loading.save(
            self.module,
            folder,
            shots=self.config.shots,
            order=self.config.order,
            task_model=self._task_model.fingerprint(),
        )

    def close(self) -> None:
        """Ends the rewards' threads and processes."""
        self.rewards.close()

    def _setting(self) -> Setting:
        return Setting(self._measures, self._questions, self.config.shots, self.config.order, self.config.evaluation)

    def _number(self, prompt: Prompt) -> int:
        if prompt.key not in self._table.number:
            # A question typed by hand.
            for number, query in enumerate(self._table.queries):
                if query.question == prompt.columns.get("prompt"):
                    return number
            raise ConfigError(
                f"prompt {prompt.key!r} is no query of the source; leave --prompt out, and queries of the source are"
                " shown"
            )
        return self._table.number[prompt.key]

    def _again(self, samples: Samples) -> Choices:
        """The same picks under the policy that is active now; each query is encoded once."""
        queries, row = samples.payload["query"].unique(return_inverse=True)
        encoded = self.module.encode(self._table.pools(queries)).of(row)
        picks = samples.payload["picks"]
        return draw_choices(self.module, encoded, picks.shape[1], None, samples.payload["temperature"], force=picks)

    def _greedy(self, queries: Sequence[Query]) -> tuple[Choices, list[list[Any]]]:
        """The most probable picks, and what was measured after each."""
        parts = []
        for start in range(0, len(queries), _AT_ONCE):
            number = torch.tensor(
                [self._table.number[query.id] for query in queries[start : start + _AT_ONCE]], device=self._device
            )
            heat = torch.ones(len(number), dtype=torch.float64, device=self._device)
            parts.append(
                draw_choices(self.module, self.module.encode(self._table.pools(number)), self.config.shots, None, heat)
            )
        choices = Choices(
            *(torch.cat([getattr(part, name) for part in parts]) for name in ("picks", "mask", "log_probs"))
        )
        return choices, self._rewarding.measure(self._measures, queries, choices, self.config.order, every=True)


def _read(config: SelectionConfig) -> Questions:
    questions = config.source.read()
    check(questions, config.shots)
    return questions


def _prompt(query: Query) -> Prompt:
    return Prompt(query.id, {"prompt": query.question, "answers": list(query.answers)})
