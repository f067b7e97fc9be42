"""Recorded candidates as groups: they stand for draws of the live policy, and their fields for the task model's
answers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.reward import Rewards, RewardTable
from groupwise_selection.config import SelectionConfig
from groupwise_selection.example import Query
from groupwise_selection.measurement import FIELDS
from groupwise_selection.policy.choices import NOTHING, Choices, draw_choices, scored_fields
from groupwise_selection.policy.network import Encoded, PointerNetwork
from groupwise_selection.source.recorded import Candidate, Recorded

Row = tuple[Query, int]
"""A query, and the place of one of its candidates in the file."""


@final
class Replay:
    """The candidates of a file, by query.

    Where the file has the recorder's log-probs, the decisions of a candidate are its picks, and the ratio of a pick is
    `p(pick) / p_recorded(pick)`. Where it has none, a candidate is one decision: the policy renormalised over the `n`
    candidates of its query, `q(c) = p(c) / sum_c' p(c')` with `p(c) = prod_t p(pick_t)`. Every candidate stands in the
    file once, as if drawn with probability `1 / n`, and the ratio is `n q(c)`. Either ratio is an importance weight,
    which the trust region bounds.

    Args:
        recorded: the file.
        config: configuration of the domain.
        queries: training queries; those without a candidate are left out.
        rewards: the opened rewards, which read the recorded fields.

    Raises:
        ConfigError: the file does not fit the queries, or lacks a field that a reward reads.
    """

    def __init__(self, recorded: Recorded, config: SelectionConfig, queries: Sequence[Query], rewards: Rewards) -> None:
        pools = {query.id: [example.id for example in query.pool] for query in queries}
        recording = recorded.read(pools, config.shots)
        self.candidates: Mapping[str, Sequence[Candidate]] = recording.candidates
        self.queries = [query for query in queries if query.id in self.candidates]
        self._path, self._shots, self._rewards, self._order = recorded.path, config.shots, rewards, config.order
        self._most = max(map(len, self.candidates.values()))
        everyone = [candidate for row in self.candidates.values() for candidate in row]
        self.renormalised = everyone[0].log_probs is None
        for name, reward in config.rewards.items():
            for field in FIELDS if reward.trains else ():
                lacking = sum(field not in candidate.fields for candidate in everyone)
                if field in getattr(reward, "needs", ()) and lacking:
                    known = [known for known in FIELDS if all(known in candidate.fields for candidate in everyone)]
                    raise ConfigError(
                        f"{recorded.path}: {lacking} of {len(everyone)} candidates have no {field!r}, which"
                        f" rewards.{name} reads; all have {', '.join(known) or 'none'}: record it, or write another"
                        " mode"
                    )
        self.remarks = [*recording.remarks, f"{recorded.path}: {len(self.queries)} queries with recorded candidates"]
        if self._order == "first_pick_last":
            self.remarks.append(
                f"{recorded.path}: choices are recorded in the order of the prompt, and the first pick"
                " of this policy stands last in it: they are read from their end"
            )

    @property
    def ratio_remark(self) -> str:
        """A sentence on what the ratio of policy steps compares."""
        if not self.renormalised:
            return f"{self._path}: it has log-probs; policy steps weigh a pick by its probability over the recorded one"
        return (
            f"{self._path}: it has no log-probs; policy steps train the policy renormalised over a query's recorded"
            " candidates, each as likely drawn as the others"
        )

    def picks(self, rows: Sequence[Row]) -> Tensor:
        """Returns the picks of candidates in the order of picking, `[B, T]`, `NOTHING` after the last."""
        return self._padded([self.candidates[query.id][place].picks for query, place in rows], NOTHING)

    def decisions(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Returns the decisions of candidates, and their log-probs as they were drawn: the picks, or the place of the
        candidate in its query's list.
        """
        if not self.renormalised:
            log_probs = [self.candidates[query.id][place].log_probs or () for query, place in rows]
            return self.picks(rows), self._padded(log_probs, 0.0)
        drawn = [-math.log(len(self.candidates[query.id])) for query, _ in rows]
        return torch.tensor([[place] for _, place in rows]), torch.tensor(drawn, dtype=torch.float64)[:, None]

    def over_candidates(
        self, network: PointerNetwork, encoded: Encoded, queries: Sequence[Query], temperature: float
    ) -> Tensor:
        """Computes the log-probs of the policy renormalised over each query's candidates, `[Q, n]`, minus infinity
        where a query has fewer.
        """
        rows = [(query, place) for query in queries for place in range(len(self.candidates[query.id]))]
        counts = torch.tensor([len(self.candidates[query.id]) for query in queries])
        of = torch.arange(len(queries)).repeat_interleave(counts).to(encoded.query.device)
        force, temperatures = self.picks(rows).to(of.device), torch.full_like(of, temperature, dtype=torch.float64)
        choices = draw_choices(network, encoded.of(of), self._shots, None, temperatures, force=force)
        total = scored_fields(choices, ())["log_prob"].sum(1)
        place = torch.tensor([place for _, place in rows], device=of.device)
        table = total.new_full((len(queries), self._most), float("-inf"))
        return table.index_put((of, place), total).log_softmax(1)

    def reward(self, rows: Sequence[Row]) -> RewardTable:
        """Rewards candidates by their recorded fields; the task model's answers were not recorded."""
        found = [self.candidates[query.id][place] for query, place in rows]
        ids = [query.id for query, _ in rows]
        columns: dict[str, list[Any]] = {
            field: [candidate.fields.get(field) for candidate in found] for field in FIELDS
        }
        columns |= {"shots": [len(candidate.picks) for candidate in found], "id": ids}
        columns |= {name: [list(getattr(query, name)) for query, _ in rows] for name in ("answers", "choices")}
        return self._rewards.score(ids, [""] * len(rows), columns)

    def _padded(self, values: Sequence[Sequence[float]], fill: float) -> Tensor:
        """Returns `[B, T]` of numbers a pick, in the order of picking."""
        ordered = [row if self._order == "first_pick_first" else row[::-1] for row in values]
        dtype = torch.float64 if isinstance(fill, float) else torch.long
        return torch.tensor([[*row, *[fill] * (self._shots - len(row))] for row in ordered], dtype=dtype)


def chosen(log_probs: Tensor, picks: Tensor) -> Choices:
    """Returns renormalised candidates as choices of one decision each; see `Replay`.

    Args:
        log_probs: `[B, n]` nats over each member's candidates.
        picks: `[B, 1]`, the candidate of each member.
    """
    return Choices(picks, torch.ones_like(picks, dtype=torch.bool), log_probs[:, None])
