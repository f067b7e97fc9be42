"""A whole run of the trainer ends where an independent replay of it ends: `tests.oracles.step` from its model folder
and its recorded rollouts.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.golden_runs.narrow import GIVEN, Narrow
from tests.golden_runs.wide import wide
from tests.oracles import step, step_loss
from tests.training.forked import launch_forked
from tests.training.step_breaks import BREAKS, Break
from tests.training.step_breaks import QUICK as QUICK_BREAKS
from tests.training.step_rounding import bound
from tests.training.step_runs import NUM_STEPS, Case, settings, train, write_experiment, write_inputs
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from groupwise.track import read_metrics

BOUND = 1e-10
"""Of a weight, all of whose size is about one. Rounding in fp64 is 1e-16; the runs magnify it to 3e-14 at most."""

EVERY = [
    Case(method, lora, processes, minibatches)
    for method in step_loss.METHODS
    for lora in (False, True)
    for processes in (1, 2)
    for minibatches in (1, 2)
]
# Every method off-policy, adapters and weights in turn.
EACH = [Case(method, lora=place % 2 == 0, minibatches=2) for place, method in enumerate(step_loss.METHODS)]
# A correction of decisions, and a method whose sums are over the whole batch; and two processes.
HERE = ("dapo+tis", "kl_cov")
QUICK = [case for case in EACH if case.method in HERE]
QUICK += [
    Case("grpo", processes=2),
    Case("dapo+tis", True, 2),
    Case("reinforce_pp", False, 2, 2),
    Case("kl_cov", True, 2, 2),
]
SHARDED = [replace(case, sharding="full") for case in EVERY if case.processes == 2]


ALONE = [
    pytest.param(
        case, marks=() if case in QUICK else pytest.mark.slow if case in EACH else pytest.mark.nightly, id=case.name
    )
    for case in EVERY
    if case.processes == 1
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("step")
    write_inputs(place)
    return place


def trained(case: Case, folder: Path) -> Path:
    write_experiment(case, folder)
    return train(case, folder)


def replayed(case: Case, folder: Path, run: Path, num_steps: int = NUM_STEPS, **more: Any) -> step.Policy:
    return step.replay(
        run, folder / case.family, folder / "corpus.jsonl", replace(settings(case), num_steps=num_steps), **more
    )


def gap(case: Case, run: Path, policy: step.Policy) -> float:
    """The largest difference in any weight between where the run and its replay end: of the model that the run saved,
    and of its adapter.
    """
    pairs = difference(load_file(run / "model" / "model.safetensors"), policy.weights())
    if case.lora:
        pairs += difference(step.adapter_at(run, NUM_STEPS), policy.trained)
    return max(pairs)


def difference(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> list[float]:
    assert set(actual) == set(expected)
    return [float((actual[name] - expected[name].detach()).abs().max()) for name in expected]


@pytest.mark.parametrize("case", ALONE)
def test_the_run_ends_where_its_replay_ends(case: Case, folder: Path) -> None:
    run = trained(case, folder)
    policy = replayed(case, folder, run)
    assert gap(case, run, policy) <= BOUND
    start = policy.base if not case.lora else step.adapter_at(run, 0)
    assert min(difference(start, policy.trained)) > 1e-3, "every tensor is meant to move"


def launch(cases: Sequence[Case], folder: Path, *arguments: str) -> None:
    for case in cases:
        write_experiment(case, folder)
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    launch_forked("tests.training.step_worker", 2, folder, *arguments)


PAIRS = [case for case in EVERY if case.processes == 2]


# Through the loss and through cotangents; with three minibatches of one group a process has no member in each.
IN_SHARDS = [Case("grpo", processes=2, sharding="full"), Case("kl_cov", True, 2, 3, sharding="full")]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([*(case for case in PAIRS if case in QUICK), *IN_SHARDS], marks=pytest.mark.slow),
        pytest.param(PAIRS + SHARDED, marks=pytest.mark.nightly),
    ],
    ids=["some", "every"],
)
def test_two_unequal_processes_end_where_the_replay_in_one_ends(cases: list[Case], tmp_path: Path) -> None:
    """All by one pair: a process takes longer to start than to train."""
    write_inputs(tmp_path)
    launch(cases, tmp_path)
    gaps = {
        case.name: gap(case, tmp_path / case.name, replayed(case, tmp_path, tmp_path / case.name)) for case in cases
    }
    assert {name: distance for name, distance in gaps.items() if not distance <= BOUND} == {}


BROKEN = [
    pytest.param(break_, id=break_.name, marks=() if break_.name in QUICK_BREAKS else pytest.mark.slow)
    for break_ in BREAKS
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_step_is_seen(broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = broken_run(broken, broken.case, tmp_path, monkeypatch)
    assert gap(broken.case, run, replayed(broken.case, tmp_path, run)) > 1e6 * BOUND


def broken_run(broken: Break, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_inputs(folder)
    with monkeypatch.context() as patch:
        broken.make(patch)
        return trained(case, folder)


@pytest.mark.nightly
def test_processes_that_divide_by_what_they_hold_themselves_are_seen(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    case = Case("grpo", processes=2)
    launch([case], tmp_path, "broken")
    run = tmp_path / case.name
    assert gap(case, run, replayed(case, tmp_path, run)) > 1e6 * BOUND


def test_the_runs_hold_what_the_replay_is_meant_to_cross(folder: Path) -> None:
    case = Case("dapo+tis", minibatches=2)
    run = folder / case.name
    rows = [
        row for row in read_metrics((run if run.exists() else trained(case, folder)) / "metrics.jsonl") if "loss" in row
    ]
    records = [
        json.loads(line)
        for place in range(NUM_STEPS)
        for line in (run / "rollouts" / f"step-{place + 1}.jsonl").read_text().splitlines()
    ]
    assert all(row["grad_norm"] > settings(case).max_grad_norm for row in rows), "the gradient is clipped"
    assert any(row["clip_ratio/region_mean"] > 0 for row in rows), "the trust region acts"
    assert any(row["num_rounds"] > 1 for row in rows), "groups are flat, and sampled again"
    assert all(row["correction/mean"] < 0.999 for row in rows), "top-p leaves something out"
    assert all(row["kl"] > 0 and row["loss_sup"] > 0 for row in rows)
    assert any(record["rewards"]["asks"] is None for record in records), "a reward is missing"
    assert any(None in record["token_log_prob"][:-1] for record in records), (
        "an environment's tokens stand between decisions"
    )
    assert len({record["num_decisions"] for record in records}) > 2


def test_recorded_log_probs_are_those_of_the_replay(folder: Path) -> None:
    """To the three digits that are kept, step for step: the sampler, the scorer and plain transformers agree."""
    case = Case("dapo+tis", minibatches=2)
    run = folder / case.name if (folder / case.name).exists() else trained(case, folder)
    path = run / "rollouts" / "step-1.jsonl"
    members, records = step.recorded(path, settings(case)), step.counted(path, settings(case))
    policy = replayed(case, folder, run, num_steps=0)
    for record, answer in zip(records, step.begun(policy, members, step_loss.METHODS[case.method]), strict=True):
        log_probs = [value for value in record["token_log_prob"] if value is not None]
        assert answer.old.tolist() == pytest.approx(log_probs, rel=5e-3)


@pytest.mark.parametrize(("family", "narrow"), [("gpt2", False), ("qwen3", True)])
def test_one_architecture_computes_in_fp64_throughout_and_one_does_not(family: str, narrow: bool, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / family, dtype=torch.float64)
    with Narrow() as narrow_mode:
        model(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False).logits.square().sum().backward()
    assert bool(narrow_mode.computed - GIVEN) is narrow


QWEN = [
    Case("grpo", minibatches=2, family="qwen3"),
    Case("grpo", True, 1, 2, "qwen3"),
    Case("gspo", minibatches=2, family="qwen3"),
]


def qwen_bound(case: Case, folder: Path, run: Path) -> float:
    """Of the run's weights, from `tests.training.step_rounding`."""

    def ends(touch: Callable[[nn.Module], None]) -> dict[str, Tensor]:
        policy = replayed(case, folder, run, touch=touch)
        return {name: weight.detach() for name, weight in [*policy.weights().items(), *policy.trained.items()]}

    return bound(ends, width=8)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case is QWEN[0] else pytest.mark.nightly) for case in QWEN],
    ids=lambda case: case.name,
)
def test_a_qwen_shape_ends_within_what_its_norms_round(case: Case, folder: Path) -> None:
    run = trained(case, folder)
    allowed = qwen_bound(case, folder, run)
    assert gap(case, run, replayed(case, folder, run)) <= allowed
    assert allowed < 1e-4, "a bound that is worth something: the weights move by a tenth"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case.lora else pytest.mark.nightly) for case in QWEN],
    ids=lambda case: case.name,
)
def test_a_qwen_shape_whose_norms_are_wide_ends_as_near_as_any_other(case: Case, tmp_path: Path) -> None:
    with wide():
        write_inputs(tmp_path)
        run = trained(case, tmp_path)
        assert gap(case, run, replayed(case, tmp_path, run)) <= BOUND


@pytest.mark.nightly
@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.name)
def test_a_broken_step_is_seen_on_a_qwen_shape(broken: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(broken.case, family="qwen3")
    run = broken_run(broken, case, tmp_path, monkeypatch)
    policy = replayed(case, tmp_path, run)
    assert gap(case, run, policy) > qwen_bound(case, tmp_path, run)


@pytest.mark.parametrize("module", [step, step_loss], ids=lambda module: module.__name__)
def test_the_replay_knows_nothing_of_what_it_judges(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    module_names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    module_names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {name for name in module_names if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name.split(".")[0] for name in outside} <= {"torch", "transformers", "numpy", "safetensors", "tests"}
    assert {name for name in outside if name.startswith("tests")} <= {"tests.oracles.step_loss"}
    assert not any(isinstance(node, ast.Name) and node.id in ("__import__", "import_module") for node in ast.walk(tree))
    assert "torch.optim" not in module_names
