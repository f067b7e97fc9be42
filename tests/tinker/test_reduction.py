from __future__ import annotations

import pytest
import torch
from tests.tinker.standin import service, slow

from groupwise.config import ConfigError
from groupwise.learner.protocol import StepNumbers
from groupwise_tinker.client import Sequenced, TinkerError
from groupwise_tinker.learner import ServerRules, TinkerLearner, measure_rules

RULES = ("sum", "mean_sequence", "mean_batch")
MEMBERS = [
    Sequenced([3, 4], [5, 6, 7], [True, False, True]),
    Sequenced([3], [9], [True]),
    Sequenced([8, 8, 8], [5, 6, 7, 8, 9], [True] * 5),
]
COTANGENTS = [[0.5, 0.0, -2.0], [1.5], [0.1, -0.2, 0.3, -0.4, 0.5]]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_of_a_server_is_measured(rule: str) -> None:
    assert measure_rules(service(rule)).reduction == rule


def test_a_server_of_another_rule_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="neither a sum, nor a mean of sequences, nor a mean of the batch") as refusal:
        measure_rules(service("sign"))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("clips", [True, False])
def test_clipping_is_measured(clips: bool) -> None:
    assert measure_rules(service("sum", clips=clips)).clips == clips


def gradient(rule: str, learner_rule: str) -> torch.Tensor:
    server = service(rule)
    learner = TinkerLearner(server, 0)
    learner.rules = ServerRules(learner_rule, clips=False)  # type: ignore[arg-type]
    training = learner.live._training
    learner.queue(MEMBERS[:2], COTANGENTS[:2])
    learner.queue(MEMBERS[2:], COTANGENTS[2:])
    norm = learner.step(StepNumbers(1e9, beta1=0.0, beta2=0.0, eps=1e9))
    assert norm == pytest.approx(float(training.policy.table.detach().norm()), rel=1e-6)
    assert training.shapes == {(8, 16)}, "every request has one shape"
    return -training.policy.table.detach()


@pytest.mark.parametrize("rule", RULES)
def test_the_gradient_is_that_of_the_cotangents_under_every_rule(rule: str) -> None:
    table = torch.zeros(32, 32, dtype=torch.float64, requires_grad=True)
    loss = torch.zeros((), dtype=torch.float64)
    for member, row in zip(MEMBERS, COTANGENTS, strict=True):
        text = [*member.prompt, *member.tokens]
        for place, cotangent in enumerate(row, len(member.prompt)):
            loss = loss + cotangent * table[text[place - 1]].log_softmax(-1)[text[place]]
    loss.backward()
    assert table.grad is not None
    torch.testing.assert_close(gradient(rule, rule), table.grad, rtol=1e-6, atol=1e-8)


def test_a_rule_that_is_believed_and_wrong_gives_another_gradient() -> None:
    assert (gradient("mean_sequence", "sum") - gradient("mean_sequence", "mean_sequence")).abs().max() > 0.1


def test_a_slow_server_ends_at_the_deadline() -> None:
    with pytest.raises(TinkerError, match=r"gave no answer within model\.timeout_seconds = 0\.05"):
        service("sum", slow, seconds=0.05).adapter(0).log_probs(MEMBERS)
