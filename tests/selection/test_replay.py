"""GRPO from recorded candidates: the step beside an oracle that walks over each pick, and the refusals of a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.selection.tiny import domain_of
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.streams import Streams

SOFT = {"vqa": {"kind": "vqa", "mode": {"kind": "soft"}}}
CANDIDATES: list[dict[str, Any]] = [
    {"pointer_pos": [0, 1], "vqa_acc_score": 0.3, "log_probs": [-0.9, -1.4]},
    {"pointer_pos": [2, 3], "vqa_acc_score": 0.9, "log_probs": [-1.1, -0.2]},
    {"pointer_pos": [3], "vqa_acc_score": 0.0, "log_probs": [-2.5]},
]


def domain(folder: Path, candidates: Any = CANDIDATES, **keys: Any) -> Any:
    ids = [query.id for query in domain_of()._questions.train]
    # One query has no candidate, and another a single one.
    tree = {name: {"pointer_candidates": candidates[:1] if name == ids[1] else candidates} for name in ids[1:]}
    path = folder / "candidates.json"
    path.write_text(json.dumps(tree))
    return domain_of(**{"candidates": {"kind": "recorded", "path": str(path)}, "rewards": SOFT, **keys})


def without_log_probs() -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "log_probs"} for row in CANDIDATES]


def walked(domain: Any, query: Any, picks: list[int], temperature: float) -> list[Tensor]:
    """The log-prob of each pick, one forward pass and one pick after the other."""
    network = domain.module
    encoded = network.encode(domain._table.pools(torch.tensor([domain._table.number[query.id]])))
    state, taken, log_probs = network.start(encoded), torch.zeros(1, len(query.pool), dtype=torch.bool), []
    for pick in picks:
        log_probs.append((network.logits(encoded, state, taken)[0] / temperature).log_softmax(0)[pick])
        taken = taken.clone()
        taken[0, pick] = True
        state = network.advance(encoded, state, torch.tensor([pick]))
    return log_probs


def oracle(domain: Any, ids: list[str], renormalised: bool, order: str, temperature: float) -> Tensor:
    """`-mean_i mean_t min(rho A, clip(rho, .8, 1.2) A)`, written down from the page."""
    terms = []
    for name in ids:
        query = next(each for each in domain._questions.train if each.id == name)
        rows = CANDIDATES[: len(domain._replay.candidates[name])]
        rewards = torch.tensor([row["vqa_acc_score"] for row in rows], dtype=torch.float64)
        if len(rows) > 1 and rewards.std() > 0:
            advantage = ((rewards - rewards.mean()) / rewards.std()).tolist()
        else:
            advantage = [0.0] * len(rows)
        reverse = 1 if order == "first_pick_first" else -1
        log_probs = [walked(domain, query, row["pointer_pos"][::reverse], temperature) for row in rows]
        if renormalised:
            whole = torch.stack([torch.stack(own).sum() for own in log_probs])
            log_ratios = [[value + math.log(len(rows))] for value in whole - whole.logsumexp(0)]
        else:
            recorded = [row["log_probs"][::reverse] for row in rows]
            log_ratios = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(log_probs, recorded, strict=True)]
        for own, worth in zip(log_ratios, advantage, strict=True):
            ratio = torch.stack(own).exp()
            terms.append(torch.minimum(ratio * worth, ratio.clamp(0.8, 1.2) * worth).mean())
    return -torch.stack(terms).mean()


@pytest.mark.parametrize("order", ["first_pick_first", "first_pick_last"])
@pytest.mark.parametrize("renormalised", [True, False])
def test_a_step_is_the_oracle_s_in_value_and_gradient(tmp_path: Path, renormalised: bool, order: str) -> None:
    subject = domain(tmp_path, without_log_probs() if renormalised else CANDIDATES, order=order)
    with torch.no_grad():
        for parameter in subject.module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    prompts = subject.prompts(range(subject.num_prompts))
    samples = subject.sample(
        prompts, 8, streams=Streams(0), step=0, settings={"temperature": 0.7}, requires=frozenset({"log_prob"})
    )
    assert len(samples) == 1 + 3 * (len(prompts) - 1)
    rewards = subject.reward(samples)
    objective = Objective.preset("grpo").model_copy(update={"divergence": Objective.preset("dapo").divergence})
    rollouts = type(samples).rollouts(
        type(samples)(**{**vars(samples), "rewards": rewards}), objective.requires_rollouts, density=False
    )
    batch = objective.prepare(rollouts, objective.init())
    rows = torch.arange(len(samples))
    parts = [rows[::2], rows[1::2]]  # members of one group lie in two passes
    plan = objective.plan(batch)
    for part in parts:
        objective.loss(subject.score(samples, part, objective.requires), plan.select(part)).total.backward()
    gradient = [parameter.grad.clone() for parameter in subject.module.parameters() if parameter.grad is not None]
    with torch.no_grad():
        value = objective.loss(subject.score(samples, rows, objective.requires), plan).total
    subject.module.zero_grad()
    expected = oracle(subject, [prompt.key for prompt in prompts], renormalised, order, 0.7)
    expected.backward()
    assert float(value) == pytest.approx(float(expected), rel=1e-9)
    found = [parameter.grad for parameter in subject.module.parameters() if parameter.grad is not None]
    assert sum(float(each.norm()) for each in found) > 1e-3
    for ours, theirs in zip(gradient, found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_entropy_and_exact_divergence_are_those_over_the_candidates(tmp_path: Path) -> None:
    subject = domain(tmp_path, without_log_probs())
    fields = frozenset({"log_prob", "entropy", "exact_divergence"})
    samples = subject.sample(subject.prompts([1]), 8, streams=Streams(0), step=0, settings={}, requires=fields)
    samples = subject.with_reference(samples)
    before = subject.score(samples, torch.arange(3), fields)
    with torch.no_grad():
        subject.module.scale.mul_(0.5)
    after = subject.score(samples, torch.arange(3), fields)
    old, new = (
        torch.empty(3).double().index_copy(0, samples.payload["picks"][:, 0], each.log_prob[:, 0]).exp()
        for each in (before, after)
    )
    assert float(old.sum()) == pytest.approx(1)
    assert before.exact_divergence.abs().max() < 1e-12
    assert after.entropy.flatten().tolist() == pytest.approx([float(-(new * new.log()).sum())] * 3)
    assert after.exact_divergence.flatten().tolist() == pytest.approx([float((new * (new / old).log()).sum())] * 3)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("log_probs", [-0.9], r"pointer_candidates\[1\]: log_probs is \[-0.9\]; write a list of 2 numbers, one a pick"),
        ("log_probs", [-0.9, 0.4], r"log_probs is \[-0.9, 0.4\]; a log-prob is at most 0"),
        ("log_probs", [-0.9, True], r"log_probs\[1\] is True; it must be a finite number"),
        ("log_probs", None, r"pointer_candidates\[1\] has no log_probs, and .*\[0\] has some; .* them or none"),
        ("vqa_acc_score", None, r"\d+ of \d+ candidates have no 'accuracy', which rewards.vqa reads"),
    ],
)
def test_a_malformed_file_is_refused_before_anything_is_trained(
    tmp_path: Path, place: str, value: Any, message: str
) -> None:
    rows = [dict(row) for row in CANDIDATES]
    rows[1][place] = value
    with pytest.raises(ConfigError, match=message):
        domain(tmp_path, rows)


@pytest.mark.parametrize("key", [{"prefix": {}}, {"random_shots": True}])
def test_what_cannot_act_on_recorded_candidates_is_refused(tmp_path: Path, key: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"remove {next(iter(key))}, or candidates"):
        domain(tmp_path, **key)
