"""The public laws of a domain: ours keep them, and each fault that an author may plant is named."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion import small as diffusion
from tests.images.restoration import small as restoration
from tests.selection import tiny as selection
from tests.training.toy import ToyDomain
from torch import nn

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Samples
from groupwise.learner.local import LocalLearner
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.testing import BrokenLaws, check_domain


def toy() -> ToyDomain:
    return ToyDomain(num_prompts=4, num_decisions=3)


@pytest.mark.parametrize(
    "make",
    [toy, diffusion.domain, restoration.domain, selection.domain_of],
    ids=["toy", "diffusion", "restoration", "selection"],
)
def test_ours_keep_them(make: Any) -> None:
    domain = make()
    # Reopening goes through the experiment for these; the verbs' own tests do it.
    check_domain(domain, reopen=lambda folder: domain)


def test_a_policy_that_begins_uniform_keeps_them() -> None:
    """All its members have the log-probs of all others, and were taken for one member."""
    domain = toy()
    for weight in domain.module.parameters():
        nn.init.zeros_(weight)
    check_domain(domain)


class Elsewhere(Domain):
    """Has a learner in place of a module."""

    unit, density, metric_names = ToyDomain.unit, ToyDomain.density, ToyDomain.metric_names

    def __init__(self) -> None:
        self.toy = toy()
        self.num_prompts = self.toy.num_prompts
        self.learner = LocalLearner(self.toy.module)

    def prompts(self, indices: Any) -> Any:
        return self.toy.prompts(indices)

    def sample(self, *arguments: Any, **options: Any) -> Samples:
        return self.toy.sample(*arguments, **options)

    def reward(self, samples: Samples) -> RewardTable:
        return self.toy.reward(samples)

    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        return self.toy.score(samples, rows, requires)

    def evaluate(self, *, streams: Streams) -> Evaluation:
        return self.toy.evaluate(streams=streams)


def test_a_domain_that_has_a_learner_and_no_module_keeps_them() -> None:
    check_domain(Elsewhere())


class OtherDecisions(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        moved = replace(samples, payload={**samples.payload, "action": (samples.payload["action"] + 1) % 4})
        return super().score(moved, rows, requires)


class Neighbours(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        scored = super().score(samples, rows, requires)
        return replace(scored, log_prob=scored.log_prob + 0.01 * (len(rows) - len(samples)))


class Unkeyed(ToyDomain):
    def sample(self, *args: Any, streams: Streams, **named: Any) -> Samples:
        return super().sample(*args, streams=Streams(int(torch.randint(2**31, (), generator=self.generator))), **named)

    generator = torch.Generator().manual_seed(0)


class Crowded(ToyDomain):
    def sample(self, prompts: Any, *args: Any, streams: Streams, **named: Any) -> Samples:
        return super().sample(prompts, *args, streams=Streams(len(prompts)), **named)


class Together(ToyDomain):
    def sample(self, *args: Any, **named: Any) -> Samples:
        samples = super().sample(*args, **named)
        first = samples.group * 3
        return replace(samples.select(first), group=samples.group)


class Global(ToyDomain):
    def sample(self, *args: Any, **named: Any) -> Samples:
        random.random()
        return super().sample(*args, **named)


class Learning(ToyDomain):
    def sample(self, *args: Any, **named: Any) -> Samples:
        samples = super().sample(*args, **named)
        with torch.no_grad():
            self.module.out.bias.add_(1e-9)
        return samples


class Detached(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        return super().score(samples, rows, requires).detach()


class TwiceTheGradient(ToyDomain):
    def backward(self, samples: Samples, rows: Any, cotangents: Scored) -> Scored:
        super().backward(samples, rows, cotangents)
        return super().backward(samples, rows, cotangents)


class Interleaved(ToyDomain):
    def sample(self, *args: Any, **named: Any) -> Samples:
        samples = super().sample(*args, **named)
        return replace(samples, group=samples.group.flip(0))


class OneShort(ToyDomain):
    def sample(self, prompts: Any, group_size: int, **named: Any) -> Samples:
        return super().sample(prompts, group_size - 1, **named)


class WrongShape(ToyDomain):
    def sample(self, *args: Any, **named: Any) -> Samples:
        samples = super().sample(*args, **named)
        return replace(samples, old_log_prob=samples.old_log_prob.sum(1))


class Unfinished(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"right": [1.0]})


class Infinite(ToyDomain):
    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"right": [float("inf")] * len(samples)})


class Unnamed(ToyDomain):
    metric_names = ("accuracy",)

    def evaluate(self, *, streams: Streams) -> Evaluation:
        return Evaluation({"exactness": 1.0})


class Unspeakable(ToyDomain):
    def describe(self, samples: Samples, rows: Any) -> list[dict[str, Any]]:
        return [{"prompt": {1, 2}} for _ in rows]


class Forgetful(ToyDomain):
    def save(self, folder: Path) -> None:
        kept = nn.Module.state_dict(self.module)
        fresh = ToyDomain(self.num_prompts, self.num_decisions)
        torch.nn.init.ones_(fresh.module.out.bias)
        fresh.save(folder)
        assert kept


class Everyone(ToyDomain):
    def score(self, samples: Samples, rows: Any, requires: frozenset[str]) -> Scored:
        return super().score(samples, torch.arange(len(samples)), requires)


class Missing(ToyDomain):
    def prompts(self, indices: Any) -> Any:
        names = {0: "first", 1: "second", 2: "third"}
        return super().prompts([index for index in indices if names[index]])


class Failing(ToyDomain):
    def evaluate(self, *, streams: Streams) -> Evaluation:
        raise KeyError("nowhere")


class Lacking(ToyDomain):
    supplies = frozenset({"log_prob", "mean_shift"})


FAULTS = [
    (OtherDecisions, "score: at unchanged weights it differs from what sample recorded"),
    (Neighbours, "score: a member's log-probs depend on the other rows"),
    (Unkeyed, "sample: the same streams and step gave other members"),
    (Crowded, "sample: a member depends on the prompts that are sampled beside it"),
    (Together, "sample: the members of a group are all the same"),
    (Global, "sample: it moved a global generator"),
    (Learning, "sample: it changed the module's weights"),
    (Detached, "score: log_prob has no gradient"),
    (TwiceTheGradient, "backward: the gradient of"),
    (Interleaved, "sample: group is"),
    (OneShort, "sample: 4 members for 2 prompts of 3; return 6"),
    (WrongShape, "sample: old_log_prob must be a float tensor of the mask's shape"),
    (Unfinished, "reward: 'right' has 1 values for 6 members"),
    (Infinite, "reward: 'right' has the value inf, not a finite one"),
    (Unnamed, "evaluate: it reports 'exactness', which metric_names does not name"),
    (Unspeakable, "describe: 'prompt' is no JSON"),
    (Forgetful, "load: after it the module scores otherwise"),
    (Everyone, "score of 2 of 6 members (rows): log_prob has the shape [6, 3]; it must be [N, T] as mask, [2, 3]"),
    (Missing, "prompts and sample: raised KeyError: 3 (at "),
    (Failing, "evaluation: raised KeyError: 'nowhere' (at "),
    (Lacking, "score: supplies names 'mean_shift'"),
]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_planted_fault_is_named(fault: type[ToyDomain], sentence: str) -> None:
    with pytest.raises(BrokenLaws) as caught:
        check_domain(fault(num_prompts=4, num_decisions=3))
    assert any(broken.startswith(sentence) for broken in caught.value.broken), caught.value
    assert "write_your_own_domain.md" in str(caught.value)
