"""A new field of a decision is one line: samples, rollouts, batches and slots have it then."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib.machinery
import importlib.util
import sys

spec = importlib.util.find_spec("groupwise.records")
LINE = '    step_size: Float[Tensor, "B T"] | None = None\\n'


class Lengthened(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname)
        assert source.count(LINE) == 1
        return compile(source.replace(LINE, LINE + LINE.replace("step_size", "credence")), self.path, "exec")


spec.loader = Lengthened("groupwise.records", spec.origin)
sys.modules["groupwise.records"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

import dataclasses
from typing import ClassVar

import torch

from groupwise import Objective
from groupwise.domain.protocol import Samples
from groupwise.objective.slot import CreditSlot
from groupwise.records import Scored
from groupwise.reward import RewardTable


class Believed(CreditSlot):
    reads: ClassVar[frozenset[str]] = frozenset({"credence"})

    def __call__(self, decisions):
        return decisions.acted.credence


sys.modules["believed"] = sys.modules["__main__"]
objective = Objective.preset("bnpo", **{"credit.callable.path": "believed:Believed"})
assert objective.requires_rollouts == {"credence"}

mask, old = torch.ones(2, 2, dtype=torch.bool), -torch.ones(2, 2)
samples = Samples([], torch.tensor([0, 0]), mask, old, credence=torch.tensor([[0.5, 2.0], [1.0, 3.0]]))
assert samples.with_decisions(mask, old, {}).credence is None
first, second = (samples.select(torch.tensor([row])) for row in (0, 1))
short = dataclasses.replace(first, mask=mask[:1, :1], old_log_prob=old[:1, :1], credence=first.credence[:, :1])
joined = Samples.concatenate([short, second])
assert joined.credence.tolist() == [[0.5, 0.0], [1.0, 3.0]]

members = dataclasses.replace(joined, place=torch.tensor([0, 0]), rewards=RewardTable({"right": [0.0, 1.0]}))
rollouts = members.rollouts(objective.requires_rollouts, density=False)
plan = objective.plan(objective.prepare(rollouts, objective.init()))
log_prob = joined.old_log_prob.clone().requires_grad_()
objective.loss(Scored(log_prob), plan).backward()
slope = log_prob.grad / log_prob.grad[1, 0]
assert slope.tolist() == [[-0.5, 0.0], [1.0, 3.0]], slope

try:
    objective.prepare(dataclasses.replace(rollouts, credence=None), objective.init())
except ValueError as error:
    assert "Rollouts.credence is missing" in str(error), error
else:
    raise AssertionError("a field that a slot reads was not asked for")
"""


@pytest.mark.slow
def test_a_new_field_reaches_a_slot_from_the_sampler() -> None:
    program = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert program.returncode == 0, program.stderr
