"""What a domain returns is checked before a run computes anything; every planted fault is named in one line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe

from groupwise.config import ConfigError
from groupwise.domain.protocol import Samples, Table
from groupwise.domain.returned import check_first_batch
from groupwise.learner.local import LocalLearner
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.training.run.launch import train


class OtherScores(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        scored = super().score(samples, rows, requires)
        return replace(scored, log_prob=1.1 * scored.log_prob)


class OtherRecord(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Samples:
        samples = super().sample(*arguments, **options)
        assert samples.recorded is not None
        return replace(samples, recorded=replace(samples.recorded, log_prob=samples.recorded.log_prob + 1))


class NarrowScores(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        return Scored(super().score(samples, rows, requires).log_prob.sum(1, keepdim=True))


class BareTensor(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Any:
        return super().score(samples, rows, requires).log_prob


class TextPrompts(ToyDomain):
    def prompts(self, indices: Any) -> Any:
        return [f"toy-{index}" for index in indices]


class OnePrompt(ToyDomain):
    def prompts(self, indices: Any) -> Any:
        return super().prompts(indices)[:1]


class Nothing(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Any:
        return None


class FlatMask(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Samples:
        samples = super().sample(*arguments, **options)
        return replace(samples, mask=samples.mask.any(1))


class ShortPayload(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Samples:
        samples = super().sample(*arguments, **options)
        return replace(samples, payload={**samples.payload, "texts": ["a"]})


class OldSignature(ToyDomain):
    def sample(self, prompts: Any, group_size: int) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class Plain(ToyDomain):
    def reward(self, samples: Samples) -> Any:
        return {"right": [1.0] * len(samples)}


class Short(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"right": [1.0]})


class Tensors(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"right": list(torch.ones(len(samples)))})  # pyright: ignore[reportArgumentType]


class PlainEvaluation(ToyDomain):
    def evaluate(self, *, streams: Streams) -> Any:
        return {"accuracy": 1.0}


class TensorMetric(ToyDomain):
    def evaluate(self, *, streams: Streams) -> Any:
        return replace(super().evaluate(streams=streams), metrics={"accuracy": torch.tensor(1.0)})


class OtherMetrics(ToyDomain):
    reported = ("sampled_accuracy", "length")

    def evaluate(self, *, streams: Streams) -> Any:
        return replace(super().evaluate(streams=streams), metrics=dict.fromkeys(self.reported, 1.0))


class NoMetrics(OtherMetrics):
    reported = ()


class NoRecords(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> Any:
        return None


class OneRecord(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> Any:
        return super().describe(samples, rows)[:1]


class SetInRecord(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> Any:
        return [{"seen": {1, 2}} for _ in rows]


class FloatImage(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> Any:
        return [{"actions": torch.ones(3)} for _ in rows]


class NumberedRecord(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> Any:
        return [{1: "first"} for _ in rows]


class ScalarPayload(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Samples:
        samples = super().sample(*arguments, **options)
        return replace(samples, payload={**samples.payload, "temperature": torch.tensor(1.0)})


class ListPayload(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Any:
        return replace(super().sample(*arguments, **options), payload=[])  # pyright: ignore[reportArgumentType]


class TensorNumber(ToyDomain):
    def sample(self, *arguments: Any, **options: Any) -> Any:
        return replace(super().sample(*arguments, **options), numbers={"turns": torch.tensor(1.0)})  # pyright: ignore[reportArgumentType]


class NoReward(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({})


class NotFinite(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"right": [float("nan")] * len(samples)})


class SetInEvaluation(ToyDomain):
    def evaluate(self, *, streams: Streams) -> Any:
        return replace(super().evaluate(streams=streams), records=[{"seen": {1, 2}}])


class ObjectInTable(ToyDomain):
    def tables(self, *, streams: Streams) -> Any:
        return [Table("baselines", "Who acts.", ["who"], [[object()]])]  # pyright: ignore[reportArgumentType]


class TextTables(ToyDomain):
    def tables(self, *, streams: Streams) -> Any:
        return ["baselines"]


FAULTS = [
    (OtherScores, "score: at unchanged weights it differs from what sample recorded by up to"),
    (OtherRecord, "sample: recorded.log_prob is not old_log_prob"),
    (NarrowScores, "score: log_prob has the shape [4, 1]; it must be [N, T] as mask, [4, 3]"),
    (BareTensor, "score: it is a Tensor; it must be groupwise.records.Scored(log_prob)"),
    (TextPrompts, "prompts: it returned a list of str; return a list of groupwise.domain.protocol.Prompt"),
    (OnePrompt, "prompts: it returned 1 for 2 indices"),
    (Nothing, "sample: it returned None; return groupwise.domain.protocol.Samples"),
    (FlatMask, "sample: mask has the shape [4]; it must be [B, T] = [4, T]"),
    (ShortPayload, "sample: payload['texts'] is a list of str and no tensor or list of 4 rows"),
    (OldSignature, "sample: raised TypeError: OldSignature.sample() got an unexpected keyword argument 'streams'"),
    (Plain, "reward: it returned a dict; return groupwise.reward.RewardTable({NAME: numbers})"),
    (Short, "reward: 'right' has 1 values for 4 members"),
    (Tensors, "reward: 'right' has a Tensor in it"),
    (NoRecords, "describe: it returned None; return a list of dicts, one a row"),
    (OneRecord, "describe: it returned 1 records for 4 rows"),
    (SetInRecord, "describe: 'seen' is no JSON (Object of type set is not JSON serializable)"),
    (FloatImage, "describe: 'actions' is a tensor float32 [3]; only images may be tensors, uint8 [H, W] or [H, W, 3]"),
    (NumberedRecord, "describe: the name 1 is no text; write '1'"),
    (ScalarPayload, "sample: payload['temperature'] is a Tensor and no tensor or list of 4 rows"),
    (ListPayload, "sample: payload is a list; it must be a dict by name"),
    (TensorNumber, "sample: numbers['turns'] is a Tensor; give a float"),
    (NoReward, "reward: the table has no reward, so members cannot be compared; give at least one"),
    (NotFinite, "reward: 'right' has the value nan, not a finite one; give None where one is missing"),
]
IN_EVALUATION = [
    (PlainEvaluation, "evaluate: it returned a dict; return groupwise.domain.protocol.Evaluation(metrics)"),
    (TensorMetric, "evaluate: the metric 'accuracy' is a Tensor; give a float"),
    (SetInEvaluation, "evaluate: records: 'seen' is no JSON (Object of type set is not JSON serializable)"),
]


def names(faults: list[Any]) -> list[str]:
    return [fault.__name__ for fault, _ in faults]


def tried(domain: type[ToyDomain], folder: Path) -> str:
    """Trains a domain as one of a user's own, and returns the one line that refuses it."""
    with pytest.raises(ConfigError) as caught:
        train(replace(job(domain=lambda device: domain()), tries_domain=True), folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=names(FAULTS))
def test_a_fault_is_named_before_anything_is_computed(fault: type[ToyDomain], sentence: str, tmp_path: Path) -> None:
    message = tried(fault, tmp_path / "run")
    assert message.startswith(f"domain: {fault.__name__}.{sentence}")
    assert message.endswith("(docs/guide/write_your_own_domain.md)")
    # Not even the evaluation of before the first step took place.
    assert not (tmp_path / "run/metrics.jsonl").exists()


@pytest.mark.parametrize(("fault", "sentence"), IN_EVALUATION, ids=names(IN_EVALUATION))
def test_a_fault_of_the_evaluation_is_named_before_the_first_step(
    fault: type[ToyDomain], sentence: str, tmp_path: Path
) -> None:
    assert tried(fault, tmp_path / "run").startswith(f"domain: {fault.__name__}.{sentence}")


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (OtherMetrics, "sampled_accuracy, length; report accuracy in every evaluation or write train.metric = {}"),
        (NoMetrics, "nothing; report accuracy in every evaluation ("),
    ],
)
def test_a_metric_that_is_not_reported_is_named_with_those_that_are_before_the_first_step(
    fault: type[ToyDomain], reported: str, tmp_path: Path
) -> None:
    chosen = job(recipe(metric="accuracy"), domain=lambda device: fault())
    with pytest.raises(ConfigError) as caught:
        train(replace(chosen, tries_domain=True), tmp_path / "run")
    said = str(caught.value)
    assert said.startswith(f'domain: {fault.__name__}.evaluate: it did not report train.metric = "accuracy", though')
    assert f"it reported {reported.format(chr(34) + 'sampled_accuracy' + chr(34))}" in said
    assert "\n" not in said
    # The evaluation of before the first step is the only row.
    assert (tmp_path / "run/metrics.jsonl").read_text().count("\n") == 1


def test_a_metric_of_a_later_stage_that_is_not_reported_is_named_as_it_begins(tmp_path: Path) -> None:
    stages = [recipe("first", num_steps=1), recipe("second", num_steps=1, metric="accuracy")]
    chosen = job(*stages, domain=lambda device: OtherMetrics())
    with pytest.raises(ConfigError, match=r"it did not report train\.metric = .accuracy."):
        train(replace(chosen, tries_domain=True), tmp_path / "run")


def test_a_sound_domain_is_trained_to_the_same_weights_as_without_the_trial(tmp_path: Path) -> None:
    for name, tries in (("tried", True), ("untried", False)):
        train(replace(job(), tries_domain=tries), tmp_path / name)
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("tried", "untried")]
    assert weights[0] == weights[1]


def test_rounding_is_no_fault() -> None:
    class Rounded(ToyDomain):
        def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
            scored = super().score(samples, rows, requires)
            return replace(scored, log_prob=scored.log_prob + 0.009)

    check_first_batch(Rounded(), Streams(0))


class GradientMode(ToyDomain):
    """Records whether a gradient is followed where the domain draws, evaluates and makes tables."""

    def __init__(self) -> None:
        super().__init__()
        self.followed: set[tuple[str, bool]] = set()

    def sample(self, *arguments: Any, **options: Any) -> Samples:
        self.followed.add(("sample", torch.is_grad_enabled()))
        return super().sample(*arguments, **options)

    def evaluate(self, *, streams: Streams) -> Any:
        self.followed.add(("evaluate", torch.is_grad_enabled()))
        return super().evaluate(streams=streams)

    def tables(self, *, streams: Streams) -> Any:
        self.followed.add(("tables", torch.is_grad_enabled()))
        return []


def test_no_gradient_is_followed_where_nothing_is_scored(tmp_path: Path) -> None:
    domain = GradientMode()
    train(job(domain=lambda device: domain), tmp_path / "run")
    assert domain.followed == {("sample", False), ("evaluate", False), ("tables", False)}


def test_a_cell_that_no_table_holds_is_named(tmp_path: Path) -> None:
    told = "domain: ObjectInTable.tables: 'baselines' has a object in it; give texts, numbers or None"
    assert tried(ObjectInTable, tmp_path / "run").startswith(told)


@pytest.mark.parametrize("name", ["metric_names", "remarks", "trained_on", "evaluated_on"])
def test_what_is_no_collection_of_texts_is_named(name: str) -> None:
    for entries, told in (((1, 2), "is (1, 2); it must be"), (None, "is None; it must be"), ("a", "is one text")):
        domain = type("Numbered", (ToyDomain,), {name: entries})()
        with pytest.raises(ConfigError, match=f"^domain: {re.escape(f'Numbered.{name} {told}')}"):
            domain.checked()


def test_tables_that_are_none_are_named(tmp_path: Path) -> None:
    assert tried(TextTables, tmp_path / "run").startswith("domain: TextTables.tables: it returned a list of str")
    # What was trained before is there.
    assert (tmp_path / "run/model").is_dir()


def test_a_learner_that_is_a_class_is_named() -> None:
    domain = ToyDomain()
    domain.learner = LocalLearner  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ConfigError, match=r"^domain: ToyDomain\.learner is the class LocalLearner; make an object"):
        domain.checked()
