"""What a method of a user's domain returns is checked at every call, not at the first alone: a run that has trained
some steps ends in one line that names the method, what it returned and what it has to return.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe

from groupwise.config import ConfigError
from groupwise.domain.protocol import Evaluation, Prompt, Samples
from groupwise.domain.returned import Fault, checked_samples
from groupwise.learner.local import LocalLearner
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.training.run.launch import train

FROM_STEP = 2
GUIDE = "(docs/guide/write_your_own_domain.md)"


class Turning(ToyDomain):
    """A domain one of whose methods returns something else from a step on.

    Args:
        method: that does.
        change: of what it returned.
        recorded: whether its sampler records the fields of the first update.
        from_step: the step.
    """

    def __init__(
        self, method: str, change: Callable[[Any], Any], *, recorded: bool = True, from_step: int = FROM_STEP
    ) -> None:
        super().__init__(recorded=recorded)
        self.method, self.change, self.step, self.from_step = method, change, 0, from_step

    def _of(self, method: str, value: Any) -> Any:
        return self.change(value) if method == self.method and self.step >= self.from_step else value

    def prompts(self, indices: Any) -> Any:
        # The first call is that of the trial before the run.
        self.step += (self.method == "prompts") and len(indices) == 4
        return self._of("prompts", super().prompts(indices))

    def sample(self, prompts: Any, group_size: int, *, step: int, **options: Any) -> Any:
        self.step = max(self.step, step)
        return self._of("sample", super().sample(prompts, group_size, step=step, **options))

    def reward(self, samples: Any) -> Any:
        return self._of("reward", super().reward(samples))

    def score(self, samples: Any, rows: Any, requires: Any) -> Any:
        return self._of("score", super().score(samples, rows, requires))

    def backward(self, samples: Any, rows: Any, cotangents: Any) -> Any:
        return self._of("backward", super().backward(samples, rows, cotangents))

    def demonstrations(self, size: int, *, streams: Any, step: int) -> Any:
        self.step = max(self.step, step)
        return self._of("demonstrations", super().demonstrations(size, streams=streams, step=step))

    def describe(self, samples: Any, rows: Any) -> Any:
        return self._of("describe", super().describe(samples, rows))

    def evaluate(self, *, streams: Any) -> Any:
        return self._of("evaluate", super().evaluate(streams=streams))

    def tables(self, *, streams: Any) -> Any:
        return self._of("tables", [])


def elsewhere(value: torch.Tensor) -> torch.Tensor:
    """The same tensor on another device."""
    return value.to("meta")


def log_prob(change: Callable[[torch.Tensor], Any]) -> Callable[[Scored], Scored]:
    return lambda scored: replace(scored, log_prob=change(scored.log_prob))


def sampled(**changes: Callable[[Any], Any]) -> Callable[[Samples], Samples]:
    return lambda samples: replace(
        samples, **{name: change(getattr(samples, name)) for name, change in changes.items()}
    )


FAULTS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("prompts", lambda prompts: None, "it returned None; return a list of groupwise.domain.protocol.Prompt"),
    ("prompts", lambda prompts: prompts[:-1], "it returned 3 for 4 indices; return one an index"),
    ("prompts", lambda prompts: [prompt.key for prompt in prompts], "it returned a list of str; return a list of"),
    ("sample", lambda samples: None, "it returned None; return groupwise.domain.protocol.Samples"),
    ("sample", lambda samples: samples.select(torch.arange(15)), "15 members for 4 prompts of 4; return 16"),
    ("sample", sampled(mask=lambda mask: mask.any(1)), "mask has the shape [16]; it must be [B, T] = [16, T]"),
    ("sample", sampled(mask=lambda mask: mask.long()), "mask must be a bool tensor [B, T], got torch.int64 [16, 3]"),
    ("sample", sampled(old_log_prob=lambda old: old[:, :2]), "old_log_prob must be a float tensor of the mask's shape"),
    ("sample", sampled(old_log_prob=lambda old: old.tolist()), "old_log_prob is a list of list; it must be a tensor"),
    ("sample", sampled(old_log_prob=elsewhere), "old_log_prob is on meta and mask on cpu; give all tensors on one"),
    ("sample", sampled(group=elsewhere), "group is on meta and mask on cpu; give all tensors on one device"),
    ("sample", sampled(group=lambda group: group.flip(0)), "group is [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0]"),
    ("sample", sampled(recorded=log_prob(lambda value: value[:, :1])), "recorded: log_prob has the shape [16, 1]"),
    ("sample", sampled(payload=lambda payload: {**payload, "more": [1]}), "payload['more'] is a list of int and no"),
    ("reward", lambda table: table.values, "it returned a dict; return groupwise.reward.RewardTable({NAME: numbers})"),
    ("reward", lambda table: RewardTable({"right": [1.0]}), "'right' has 1 values for 16 members"),
    ("reward", lambda table: RewardTable({"right": ["1"] * 16}), "'right' has a str in it; give numbers, and None"),  # pyright: ignore[reportArgumentType]
    ("score", lambda scored: scored.log_prob, "it is a Tensor; it must be groupwise.records.Scored(log_prob)"),
    ("score", log_prob(lambda value: value.sum(1)), "log_prob has the shape [16]; it must be [N, T] as mask, [16, 3]"),
    ("score", log_prob(lambda value: value[:1]), "log_prob has the shape [1, 3]; it must be [N, T] as mask, [16, 3]"),
    ("score", log_prob(lambda value: value.long()), "log_prob is int64; it must be of a floating-point dtype, such as"),
    ("score", log_prob(elsewhere), "log_prob is on meta and mask on cpu; give all tensors on one device"),
    ("score", log_prob(lambda value: value.tolist()), "log_prob is a list of list; it must be a tensor"),
    ("score", log_prob(lambda value: None), "it has no log_prob, which the method was asked for (requires)"),
    ("backward", lambda scored: None, "it is None; it must be groupwise.records.Scored(log_prob)"),
    ("backward", log_prob(lambda value: value[:, :1]), "log_prob has the shape [12, 1]; it must be [N, T] as mask"),
    ("describe", lambda records: None, "it returned None; return a list of dicts, one a row"),
    ("describe", lambda records: records[1:], "it returned 7 records for 8 rows; return one a row"),
    ("describe", lambda records: [*records[:-1], {"seen": {1}}], "'seen' is no JSON (Object of type set is not JSON"),
    ("evaluate", lambda evaluation: {"accuracy": 1.0}, "it returned a dict; return groupwise.domain.protocol"),
    ("evaluate", lambda evaluation: Evaluation([1.0]), "metrics is a list of float; it must be a dict by name"),  # pyright: ignore[reportArgumentType]
    ("evaluate", lambda evaluation: Evaluation({"accuracy": "1"}), "the metric 'accuracy' is a str; give a float"),  # pyright: ignore[reportArgumentType]
    ("evaluate", lambda evaluation: Evaluation({}, None), "records is None; give a list of dicts, one a sample"),  # pyright: ignore[reportArgumentType]
    ("evaluate", lambda evaluation: Evaluation({}, [{}, {"seen": {1}}]), "records: 'seen' is no JSON (Object of type"),
    ("evaluate", lambda evaluation: Evaluation({}, pictures={"one": torch.ones(2, 2)}), "pictures['one'] is a tensor"),
    ("evaluate", lambda evaluation: Evaluation({}, pictures={"one": "a.png"}), "pictures['one'] is a str; give a"),  # pyright: ignore[reportArgumentType]
    ("tables", lambda tables: None, "it returned None; return a list of groupwise.domain.protocol.Table"),
]  # fmt: skip


FIRST = {method: place for place, (method, *_) in reversed(list(enumerate(FAULTS)))}


@pytest.mark.parametrize(
    ("method", "change", "sentence"),
    [
        fault if FIRST[fault[0]] == place else pytest.param(*fault, marks=pytest.mark.slow)
        for place, fault in enumerate(FAULTS)
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_has_trained_ends_in_one_line(
    method: str, change: Callable[[Any], Any], sentence: str, tmp_path: Path
) -> None:
    chosen = recipe(
        method="kl_cov" if method == "backward" else "grpo", num_steps=4, evaluate_every=1, updates_per_batch=2
    )
    run = job(chosen, domain=lambda device: Turning(method, change, recorded=method != "score"), tries_domain=True)
    with pytest.raises(ConfigError) as caught:
        train(run, tmp_path / "run")
    message = str(caught.value)
    assert message.startswith(f"domain: Turning.{method}: {sentence}"), message
    assert message.endswith(GUIDE)
    assert "\n" not in message
    rows = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= FROM_STEP, "the evaluation and the step before are whole"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda samples: None, "it returned None; return groupwise.domain.protocol.Samples"),
        (
            sampled(auxiliary_count=lambda count: {}),
            "auxiliary_count['supervised'] is None; give a tensor [B] with B =",
        ),
        (sampled(payload=lambda payload: {**payload, "more": [1]}), "payload['more'] is a list of int and no tensor"),
    ],
)
def test_demonstrations_of_a_later_step_are_checked(change: Any, sentence: str, tmp_path: Path) -> None:
    chosen = recipe(method="grpo", objective={"auxiliary.supervised": 0.1}, demonstrations_per_step=4)
    run = job(chosen, domain=lambda device: Turning("demonstrations", change), tries_domain=True)
    with pytest.raises(ConfigError) as caught:
        train(run, tmp_path / "run")
    assert str(caught.value).startswith(f"domain: Turning.demonstrations: {sentence}")


def test_a_group_of_a_large_batch_is_shown_where_it_is_wrong() -> None:
    """All 10,000 entries stood in the one line, twice."""
    group = torch.arange(1250).repeat_interleave(8)
    group[4000] = 7
    mask = torch.ones(len(group), 1, dtype=torch.bool)
    samples = Samples([Prompt(str(number), {}) for number in range(1250)], group, mask, -torch.rand(mask.shape))
    with pytest.raises(Fault, match=r"group is \[\.\.\., 499, .*, 499, 7, 500, .*\.\.\.\] of the shape") as fault:
        checked_samples(samples, 1250, 8, ToyDomain())
    assert len(str(fault.value)) < 400


FIRST_FAULTS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("score", log_prob(lambda value: 1.1 * value), "at unchanged weights it differs from what sample recorded by up"),
    ("score", lambda scored: scored.log_prob, "it is a Tensor; it must be groupwise.records.Scored(log_prob)"),
    ("prompts", lambda prompts: prompts[:1], "it returned 1 for 2 indices; return one an index"),
    ("sample", sampled(recorded=log_prob(lambda value: value + 1)), "recorded.log_prob is not old_log_prob"),
    ("sample", sampled(mask=lambda mask: mask.any(1)), "mask has the shape [4]; it must be [B, T] = [4, T]"),
    ("sample", sampled(mask=lambda mask: mask & (torch.arange(4) > 0)[:, None]), "a member has no decision (its row"),
    ("sample", sampled(payload=lambda payload: []), "payload is a list; it must be a dict by name"),
    ("sample", sampled(payload=lambda payload: {"t": torch.tensor(1.0)}), "payload['t'] is a Tensor and no tensor or"),
    ("reward", lambda table: RewardTable({"right": list(torch.ones(4))}), "'right' has a Tensor in it"),  # pyright: ignore[reportArgumentType]
    ("reward", lambda table: RewardTable({}), "the table has no reward, so members cannot be compared; give at least"),
    ("reward", lambda table: RewardTable({"right": [math.nan] * 4}), "'right' has the value nan, not a finite one"),
    ("describe", lambda records: [{"actions": torch.ones(3)}] * 4, "'actions' is a tensor float32 [3]; only images"),
    ("describe", lambda records: [{1: "first"}] * 4, "the name 1 is no text; write '1'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "change", "sentence"), FIRST_FAULTS, ids=lambda value: value[:30] if isinstance(value, str) else ""
)
def test_a_fault_of_the_first_batch_is_named_before_anything_is_computed(
    method: str, change: Callable[[Any], Any], sentence: str, tmp_path: Path
) -> None:
    run = job(domain=lambda device: Turning(method, change, from_step=0), tries_domain=True)
    with pytest.raises(ConfigError) as caught:
        train(run, tmp_path / "run")
    message = str(caught.value)
    assert message.startswith(f"domain: Turning.{method}: {sentence}")
    assert message.endswith(GUIDE)
    assert "\n" not in message
    # Not even the evaluation of before the first step took place.
    assert not (tmp_path / "run/metrics.jsonl").exists()


class OtherMetrics(ToyDomain):
    reported = ("sampled_accuracy", "length")

    def evaluate(self, *, streams: Streams) -> Any:
        return replace(super().evaluate(streams=streams), metrics=dict.fromkeys(self.reported, 1.0))


class NoMetrics(OtherMetrics):
    reported = ()


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


@pytest.mark.parametrize("name", ["metric_names", "remarks", "trained_on", "evaluated_on"])
def test_what_is_no_collection_of_texts_is_named(name: str) -> None:
    for entries, told in (((1, 2), "is (1, 2); it must be"), (None, "is None; it must be"), ("a", "is one text")):
        domain = type("Numbered", (ToyDomain,), {name: entries})()
        with pytest.raises(ConfigError, match=f"^domain: {re.escape(f'Numbered.{name} {told}')}"):
            domain.checked()


def test_a_learner_that_is_a_class_is_named() -> None:
    domain = ToyDomain()
    domain.learner = LocalLearner  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ConfigError, match=r"^domain: ToyDomain\.learner is the class LocalLearner; make an object"):
        domain.checked()
