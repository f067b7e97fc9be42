"""Reward-weighted cross-entropy: the policy is trained on every candidate of a query, with more weight on better
candidates.
"""

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from groupwise.domain.protocol import Prompt, Samples
from groupwise.streams import Streams
from groupwise_selection.config import Sampled, SelectionConfig
from groupwise_selection.example import Query
from groupwise_selection.measurement import Measures, QueryTable
from groupwise_selection.member_rewards import MemberRewards, measured_prefixes
from groupwise_selection.policy.choices import Choices, sample_choices
from groupwise_selection.policy.network import PointerNetwork
from groupwise_selection.replay import Replay
from groupwise_selection.source.recorded import Recorded


def candidate_weights(rewards: Tensor, query: Tensor, tau: float, kind: Literal["reward", "rank"] = "reward") -> Tensor:
    """Computes `w_i = exp(x_i / tau) / sum_j exp(x_j / tau)` over the candidates of one query, fp64 `[B]`; the weights
    of a query sum to one.

    `x_i = R_i`, or under `rank` the number of worse candidates (half of the equal ones) over `n - 1`, 0 for a single
    candidate.

    Args:
        rewards: `[B]`; NaN for a candidate without one, whose weight is 0.
        query: `[B]`, number of the query of each candidate.
        tau: temperature, in units of reward.
        kind: `reward` weighs by rewards, `rank` by their ranks.

    Example:
        >>> weights = candidate_weights(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1]), tau=1.0)
        >>> [round(weight, 4) for weight in weights.tolist()]
        [0.2689, 0.7311, 1.0]

    Source: the second stage of source 004, which breaks ties of the ranks by place; equal candidates have equal weights
    here.
    """
    rewards = rewards.double()
    rewarded = ~rewards.isnan()
    comparable = (query[:, None] == query[None]) & rewarded[:, None] & rewarded[None]
    if kind == "rank":
        worse = (comparable & (rewards[None] < rewards[:, None])).sum(1).double()
        equal = (comparable & (rewards[None] == rewards[:, None])).sum(1).double() - 1
        rewards = (worse + 0.5 * equal) / (comparable.sum(1) - 1).clamp(min=1)
    scaled = torch.where(comparable, rewards[None] / tau, float("-inf"))
    log_weight = torch.where(rewarded, rewards / tau, float("-inf"))
    # A candidate without a reward has no total: minus infinity less itself would be NaN.
    total = torch.where(rewarded, torch.where(comparable, scaled, float("-inf")).logsumexp(1), 0.0)
    return (log_weight - total).exp()


@final
class CandidateSource:
    """Candidates with their weights: drawn from the live policy and measured, or read from a file.

    Args:
        config: configuration of the domain; `rce` is set.
        queries: training queries.
        table: the tensors of all queries.
        network: the policy.
        measures: measures choices with the task model.
        member_rewards: rewards measured choices.

    Raises:
        ConfigError: a recorded file does not fit the queries.
    """

    def __init__(
        self,
        config: SelectionConfig,
        queries: Sequence[Query],
        table: QueryTable,
        network: PointerNetwork,
        measures: Measures,
        member_rewards: MemberRewards,
    ) -> None:
        assert config.rce is not None
        self._config, self._rce = config, config.rce
        self._queries, self._table, self._network = list(queries), table, network
        self._measures, self._member_rewards = measures, member_rewards
        self._replay: Replay | None = None
        if isinstance(config.rce.candidates, Recorded):
            self._replay = Replay(config.rce.candidates, config, queries, member_rewards.rewards)
            self._queries = self._replay.queries

    @property
    def remarks(self) -> list[str]:
        """Sentences on recorded candidates that were left out or changed."""
        return [] if self._replay is None else self._replay.remarks

    def draw(self, size: int, streams: Streams, step: int) -> Samples:
        """Draws queries at random and lists their candidates: at most `size`, but at least those of one query.

        Args:
            size: highest number of candidates.
            streams, step: keys of the draws.

        Returns:
            one member a candidate, whose mask is false everywhere, `weight` in the payload, and the weights as
            `auxiliary_count["supervised"]`: their sum is the number of queries.
        """
        order = [self._queries[place] for place in streams.numpy("rce", step).permutation(len(self._queries)).tolist()]
        queries, choices, rewards = (
            self._sampled(order, size, streams, step)
            if self._replay is None
            else self._recorded(self._replay, order, size)
        )
        number = [self._table.number[query.id] for query in queries]
        device = choices.picks.device
        group = torch.tensor(number, device=device).unique(return_inverse=True)[1]
        weight = candidate_weights(
            torch.tensor(rewards, dtype=torch.float64), group.cpu(), self._rce.tau.at(step), self._rce.weights
        ).to(device)
        ids = list(dict.fromkeys(sorted(number)))
        return Samples(
            prompts=[
                Prompt(self._table.queries[place].id, {"prompt": self._table.queries[place].question}) for place in ids
            ],
            group=group,
            mask=torch.zeros_like(choices.mask),
            old_log_prob=torch.zeros(choices.mask.shape, dtype=choices.log_probs.dtype, device=device),
            payload={
                "query": torch.tensor(number, device=device),
                "picks": choices.picks,
                "temperature": torch.full((len(number),), self._config.temperature, dtype=torch.float64, device=device),
                "weight": weight,
            },
            auxiliary_count={"supervised": weight},
        )

    def _sampled(
        self, order: Sequence[Query], size: int, streams: Streams, step: int
    ) -> tuple[list[Query], Choices, list[float]]:
        candidates, shots = self._rce.candidates, self._config.shots
        assert isinstance(candidates, Sampled)
        chosen = order[: max(1, size // candidates.num_candidates)]
        queries = [query for query in chosen for _ in range(candidates.num_candidates)]
        generators = [
            streams.generator("rce", step, query.id, member)
            for query in chosen
            for member in range(candidates.num_candidates)
        ]
        device, num_shots = next(self._network.parameters()).device, None
        if self._config.random_shots:
            num_shots = [int(streams.numpy("rce shots", step, query.id).integers(1, shots + 1)) for query in chosen]
        numbers = torch.tensor([self._table.number[query.id] for query in chosen], device=device)
        choices = sample_choices(
            self._network, self._table.pools(numbers), shots, candidates.temperature, generators, num_shots=num_shots
        )
        measurements = measured_prefixes(
            self._measures, queries, choices, self._config.order, every=self._config.prefix is not None
        )
        totals = self._member_rewards.reward(queries, measurements, choices.mask, judges=False).total(
            groups=[query.id for query in queries]
        )
        return queries, choices, [math.nan if total is None else total for total in totals]

    def _recorded(self, replay: Replay, order: Sequence[Query], size: int) -> tuple[list[Query], Choices, list[float]]:
        rows: list[tuple[Query, int]] = []
        for query in order:
            candidates = replay.candidates[query.id]
            if rows and len(rows) + len(candidates) > size:
                break
            rows += [(query, place) for place in range(len(candidates))]
        totals = replay.reward(rows).total(groups=[query.id for query, _ in rows])
        weights = next(self._network.parameters())
        picks = replay.picks(rows).to(weights.device)
        choices = Choices(picks, picks >= 0, weights.new_zeros(*picks.shape, 1))
        return [query for query, _ in rows], choices, [math.nan if total is None else total for total in totals]
