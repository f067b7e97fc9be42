"""The domain: groups of ordered choices, the same picks scored again, exact divergence, evaluation, files; in fp64 on a
tiny pool.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.selection.tiny import TABLE, domain_of

from groupwise.config import ConfigError, merge, validate
from groupwise.domain.protocol import ComparesExactly, Prompt, Samples, Tabulates
from groupwise.streams import Streams
from groupwise_selection.baseline import nearest, prefixes
from groupwise_selection.config import SelectionConfig
from groupwise_selection.domain import SelectionDomain
from groupwise_selection.policy.choices import NOTHING

ALL = frozenset({"log_prob", "entropy", "score_norm"})


@pytest.fixture(scope="module")
def domain() -> SelectionDomain:
    return domain_of()


def sampled(domain: SelectionDomain, size: int = 4, step: int = 0, **settings: float) -> Samples:
    return domain.sample(domain.prompts([0, 3]), size, streams=Streams(5), step=step, settings=settings, requires=ALL)


def moved(domain: SelectionDomain, size: float = 0.3) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in domain.module.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def test_the_exact_divergence_from_itself_is_zero_and_grows_when_the_policy_moves() -> None:
    made = domain_of()
    moved(made)
    assert isinstance(made, ComparesExactly)
    samples = made.with_reference(sampled(made))
    needs = frozenset({"log_prob", "exact_divergence"})
    same = made.score(samples, torch.arange(8), needs).exact_divergence
    assert same is not None
    assert float(same.detach().abs().max()) < 1e-12
    moved(made)
    after = made.score(samples, torch.arange(8), needs).exact_divergence
    assert after is not None
    assert bool((after.detach()[:, 0] > 1e-6).all())


def test_greedy_before_training_is_nearest_neighbours(domain: SelectionDomain) -> None:
    samples = sampled(domain, size=1, top_k=1)
    queries = [domain.config.source.read().train[place] for place in (0, 3)]
    for row, choices in enumerate(prefixes(nearest, queries, 2)):
        picks = samples.payload["picks"][row].tolist()
        assert [queries[row].pool[place].id for place in picks] == [each.id for each in choices[1]]


def test_rewards_read_what_was_measured(domain: SelectionDomain) -> None:
    samples = sampled(domain)
    table = domain.reward(samples)
    last = [row[-1] for row in samples.payload["measured"]]
    assert table.values["vqa"] == [each.accuracy + each.expected for each in last]
    assert not table.maps
    with_prefix = domain_of(prefix={"discount": 1.0})
    samples = sampled(with_prefix)
    maps = with_prefix.reward(samples).maps["vqa"]
    first, second = (each.accuracy + each.expected for each in samples.payload["measured"][0])
    assert maps[0].tolist() == pytest.approx([(first + second) / 2, second])


def test_an_example_added_after_training_can_be_picked(tmp_path: Path) -> None:
    made = domain_of()
    moved(made)
    made.save(tmp_path / "model")
    larger = domain_of(
        model={"kind": "pretrained", "path": str(tmp_path / "model")},
        source={"kind": "digit_rules", "pool_size": 6, "bank_size": 9},
    )
    samples = sampled(larger, size=30)
    assert samples.payload["picks"].max() > 3
    assert all(len(set(picks)) == 2 for picks in samples.payload["picks"].tolist())


def test_ending_early() -> None:
    made = domain_of(stop=True, prefix={"discount": 0.5})
    with torch.no_grad():
        assert made.module.end is not None
        made.module.end.add_(100.0)
    samples = sampled(made, temperature=20.0, size=20)
    short = samples.payload["picks"][:, 1] < 0
    assert int(short.sum()) > 0
    assert samples.mask.all(), "ending is the second decision"
    table = made.reward(samples)
    row = int(short.nonzero()[0, 0])
    assert table.maps["vqa"][row][0] == pytest.approx(table.maps["vqa"][row][1])
    assert len(made.describe(samples, torch.tensor([row]))[0]["demonstrations"]) == 1
    assert (samples.payload["picks"] != NOTHING).all()


def test_evaluation_reports_every_number_of_demonstrations(domain: SelectionDomain) -> None:
    found = domain.evaluate(streams=Streams(0))
    assert set(found.metrics) <= set(domain.metric_names)
    assert next(iter(found.metrics)) == "selected/accuracy"
    assert found.metrics["selected/accuracy"] == pytest.approx(
        (found.metrics["selected/accuracy_1"] + found.metrics["selected/accuracy_2"]) / 2
    )
    assert len(found.records) == 4
    assert "demonstrations" in found.records[0]
    mean = sum(record["rewards"]["accuracy_2"] for record in found.records) / 4
    assert mean == pytest.approx(found.metrics["selected/accuracy_2"])
    validation = domain_of(evaluation={"validation": True}).evaluate(streams=Streams(0))
    assert "validation/accuracy_2" in validation.metrics


def test_tables_stand_beside_every_baseline() -> None:
    made = domain_of(evaluation={"tables": True, "num_oracle": 2, "num_fixed": 3, "num_resamples": 20})
    assert isinstance(made, Tabulates)
    baselines, lead = made.tables(streams=Streams(0))
    names = [row[0] for row in baselines.rows]
    assert [names[place] for place in (0, 1, 2, 5, 6)] == ["zero-shot", "random", "kNN", "best fixed set", "ours"]
    assert str(names[3]).startswith("MMR")
    assert str(names[4]).startswith("DPP")
    assert names[7:10] == ["kNN, as exported", "ours, as exported", "oracle beam (2 queries)"]
    assert baselines.notes[-1].startswith("As exported: a query chooses among the 4 nearest of the ")
    assert list(baselines.columns) == ["chosen by", "1 shot", "2 shots"]
    assert len(lead.rows) == 6
    # Before training the policy is kNN: the paired difference is exactly nothing.
    assert [(cell.mean, cell.low, cell.high) for cell in lead.rows[2][1:]] == [(0.0, 0.0, 0.0)] * 2  # type: ignore[union-attr]
    assert domain_of().tables(streams=Streams(0)) == []


def test_held_out_queries_with_one_pool_are_refused_unless_that_is_meant() -> None:
    made = domain_of()
    same = made._questions.held_out[0].pool
    made._questions = replace(
        made._questions, held_out=[replace(query, pool=same) for query in made._questions.held_out]
    )
    with pytest.raises(
        ConfigError, match=r"all 4 held-out queries have one and the same pool.*evaluation\.shared_pool = true"
    ):
        made.evaluate(streams=Streams(0))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shots": 5}, r"field pool has 4 examples, and shots = 5"),
        ({"sampling_schedule": {"temperature": 0.0}}, "above 0 at every step"),
        (
            {"rewards": {"j": {"kind": "callable", "path": "tests.selection.tiny:graded", "role": "judge"}}},
            "nothing to train on",
        ),
        ({"shots": 9}, "shots = 9: this task model has places for 8 demonstrations; write 1 to 8"),
        (
            {"source": {"kind": "tickets"}},
            'task_model.kind = "digit_rules" reads the digits of .* the source is "tickets"; write a model of your own',
        ),
        ({"model": {"stop_probability": 0.6}}, "stop_probability = 0.6"),
        ({"model": {"width": 9}}, "width = 9 cannot be divided among num_heads = 2"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_trained(changes: dict[str, Any], says: str) -> None:
    tree = merge(TABLE, {name: value for name, value in changes.items() if name != "rewards"})
    with pytest.raises(ConfigError, match=says):
        validate(SelectionConfig, tree | ({"rewards": changes["rewards"]} if "rewards" in changes else {})).open(
            streams=Streams(0)
        )


def test_stages_share_the_policy_and_may_change_the_rest(domain: SelectionDomain) -> None:
    other = domain.adapted(domain.config.model_copy(update={"temperature": 2.0}))
    assert other.module is domain.module
    assert domain.adapted(domain.config) is domain
    with pytest.raises(ConfigError, match="cannot differ between stages"):
        domain.adapted(domain.config.model_copy(update={"stop": True}))


def test_a_held_out_question_typed_by_hand_is_known(domain: SelectionDomain) -> None:
    record = domain.evaluate(streams=Streams(0)).records[0]
    asked = Prompt(record["prompt"], {"prompt": record["prompt"]})
    found = domain.sample(
        [asked], 1, streams=Streams(0), step=0, settings={"top_k": 1}, requires=frozenset({"log_prob"})
    )
    assert domain.describe(found, torch.arange(1))[0]["prompt"] == record["prompt"]
