"""A policy whose weights live elsewhere: the language domain trains it as it trains a model of its own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.domain.language.conftest import tiny_config
from tests.training.toy import job, recipe, supervised

from groupwise.config import ConfigError
from groupwise.domain.language.data import split
from groupwise.domain.language.domain import LanguageDomain
from groupwise.domain.language.policy import LocalPolicy, Policy, open_policy
from groupwise.streams import Streams
from groupwise.track import read_metrics
from groupwise.training.run.launch import Result, train

CONFIG = tiny_config(
    rewards={
        "correct": None,
        "worked": None,
        "ones": {"kind": "callable", "path": "tests.domain.language.test_policy:share_of_ones"},
    }
)
STAGES = (
    supervised(num_steps=1, demonstrations_per_step=6),
    recipe(num_steps=2, updates_per_batch=2, objective={"divergence.kind": "k3", "divergence.beta": 0.1}),
)

BOUND = 1e-9
"""Of a weight in fp64. Gradients through autograd and by cotangents differ in the order of their sums, some 1e-15
relative to their size; AdamW divides by roots of second moments and magnifies that in the smallest of them.
"""


def share_of_ones(completions: Sequence[str], **columns: Any) -> list[float]:
    return [text.split().count("1") / 8 for text in completions]


class ServedLearner:
    """A learner that takes cotangents only."""

    differentiates = False

    def __init__(self, local: Any) -> None:
        self._local, self.num_closed = local, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def close(self) -> None:
        self.num_closed += 1


class ServedPolicy(Policy):
    """A stand-in for a policy behind a server: it shows numbers, and neither a module nor a gradient."""

    def __init__(self, factor: float = 1.0) -> None:
        local = open_policy(CONFIG, split(CONFIG.data, CONFIG.demonstrations), Streams(0), torch.device("cpu"))
        assert isinstance(local, LocalPolicy)
        self._local, self._factor = local, factor
        self.tokenizer, self.end_ids, self.max_positions = local.tokenizer, local.end_ids, local.max_positions
        self.device, self.supplies, self.remarks = local.device, local.supplies, ["model: it is served elsewhere"]
        self.learner: Any = ServedLearner(local.learner)
        self.engine, self.live_engine = local.engine, local.live_engine
        self.asked_live: list[bool] = []

    @torch.no_grad()
    def sample(self, batch: Any, *, live: bool = False) -> Any:
        self.asked_live.append(live)
        return self._local.sample(batch, live=live)

    @torch.no_grad()
    def score(self, inputs: Any) -> Any:
        return self._local.score(inputs)

    def backward(self, inputs: Any, cotangents: Any) -> Any:
        return self._local.backward(inputs, {name: self._factor * value for name, value in cotangents.items()})

    def save(self, folder: Path) -> None:
        self._local.save(folder)

    def with_engine(self, engine: Any) -> ServedPolicy:
        return self


def trained(folder: Path, policy: ServedPolicy | None) -> Result:
    def build(device: torch.device) -> LanguageDomain:
        return LanguageDomain(CONFIG, streams=Streams(0), policy=policy)

    return train(job(*STAGES, domain=build), folder)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return trained(tmp_path_factory.mktemp("local") / "run", None)


def largest_difference(one: Result, two: Result) -> float:
    first, second = (load_file(result.folder.model / "model.safetensors") for result in (one, two))
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def test_a_served_policy_ends_where_a_local_one_does(local: Result, tmp_path: Path) -> None:
    policy = ServedPolicy()
    start = {name: value.clone() for name, value in policy._local.module.state_dict().items()}
    served = trained(tmp_path / "served", policy)
    assert largest_difference(local, served) < BOUND
    end = load_file(served.folder.model / "model.safetensors")
    assert max(float((end[name] - start[name]).abs().max()) for name in end) > 1e-3, "it was trained"
    for ours, theirs in zip(read_metrics(local.folder.metrics), read_metrics(served.folder.metrics), strict=True):
        for name in {"reward", "loss", "grad_norm", "kl", "eval/greedy/ones"} & {*ours, *theirs}:
            assert theirs[name] == pytest.approx(ours[name], rel=1e-6, abs=1e-9), (ours["step"], name)
    assert set(policy.asked_live) == {False, True}, "training samples, and evaluation asks for the live weights"


def test_the_domain_reaches_for_nothing_beside_the_policy() -> None:
    policy = ServedPolicy()
    domain = LanguageDomain(CONFIG, streams=Streams(0), policy=policy)
    assert not hasattr(domain, "module")
    assert domain.learner is policy.learner
    assert "model: it is served elsewhere" in domain.remarks
    other = domain.adapted(CONFIG.model_copy(update={"max_prompt_tokens": 40}))
    assert other.policy is policy
    other.close()
    assert policy.learner.num_closed == 0, "the weights belong to the domain that opened them"
    domain.close()
    assert policy.learner.num_closed == 1


def test_a_folder_without_a_model_is_named_by_its_key(tmp_path: Path) -> None:
    config = tiny_config(model={"kind": "pretrained", "path": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"^domain\.model\.path = .*: no config\.json in it"):
        open_policy(config, split(config.data), Streams(0), torch.device("cpu"))
