"""The functions of the pages about prime-rl, NeMo-RL, slime and OpenRLHF, as they stand there: with tensors of each
system's signature and its own reduction afterwards, they have the value and gradient of the objective.
"""

import enum
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.conformance import GROUPS, LENGTHS, MICRO_BATCHES, REWARDS, case
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.records import Rollouts, Scored
from groupwise_trainers.micro_batch import AGGREGATIONS, micro_batch_loss, refusals

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
SAMPLER = ("behaviour_log_prob",)
TOKENS = int(case()["mask"].sum())
"""Tokens of the step that the policy wrote, which every system counts."""
# Page -> the name of the system in messages, what it passes, the aggregations that it leaves exact.
SYSTEMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "prime_rl": ("prime-rl", SAMPLER, ("token_mean",)),
    "nemo_rl": ("NeMo-RL", (*SAMPLER, "reference_log_prob"), AGGREGATIONS),
    "slime": ("slime", (*SAMPLER, "reference_log_prob"), AGGREGATIONS),
    "openrlhf": ("OpenRLHF", SAMPLER, AGGREGATIONS),
}


def carried(page: str) -> list[str]:
    system, passes, aggregations = SYSTEMS[page]
    return [name for name in method_names() if not list(refusals(Objective.preset(name), system, passes, aggregations))]


QUICK = ("grpo", "dapo", "gspo", "cispo", "dr_grpo", "rloo")
CASES = [
    pytest.param(page, name, marks=() if name in QUICK else pytest.mark.slow, id=f"{page}-{name}")
    for page in SYSTEMS
    for name in carried(page)
]


@dataclass
class LossInputs:
    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = None


@dataclass
class LossOutputs:
    loss: Tensor
    metrics: dict[str, Tensor]


def scored_by_slime(logits: Tensor, **columns: Any) -> tuple[Tensor, dict[str, Any]]:
    """Stands for slime's scoring: the test's logits are the log-probs, packed `[1, T, 1]`."""
    return torch.empty(0), {"log_probs": list(logits[0, :, 0].split(columns["response_lengths"]))}


MODULES = {
    "prime_rl.trainer.rl.loss": {"LossInputs": LossInputs, "LossOutputs": LossOutputs},
    "nemo_rl.algorithms.loss.interfaces": {
        "LossInputType": enum.Enum("LossInputType", "LOGIT LOGPROB"),
        "LossType": enum.Enum("LossType", "TOKEN_LEVEL SEQUENCE_LEVEL"),
    },
    "slime.backends.megatron_utils.loss": {"get_log_probs_and_entropy": scored_by_slime},
}


@pytest.fixture(autouse=True)
def _systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the systems, with the few names that the recipes import."""
    for path, names in MODULES.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:depth]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(names)


def recipe(page: str, objective: str = "") -> dict[str, Any]:
    """Runs the code of a page; in slime's the method is a line of the code, not an argument."""
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'^```py title="groupwise_loss"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    if objective:
        code = code.replace('Objective.preset("gspo")', f'Objective.preset("{objective}")')
    namespace: dict[str, Any] = {}
    exec(compile(code, f"{page}.md", "exec"), namespace)
    return namespace


def tensors_of(objective: Objective, sampler_is_old: bool) -> tuple[dict[str, Tensor], float, Tensor]:
    """The shared case with a sampler and the objective's advantages, its loss and its gradient by the log-probs."""
    tensors = case()
    drift = torch.linspace(-0.2, 0.2, 60, dtype=torch.float64).reshape(12, 5)
    tensors["behaviour"] = tensors["old"] if sampler_is_old else tensors["old"] + drift
    prompts = list(dict.fromkeys(GROUPS))
    batch = objective.prepare(
        Rollouts(
            group=torch.tensor([prompts.index(prompt) for prompt in GROUPS]),
            mask=tensors["mask"],
            old_log_prob=tensors["old"],
            rewards={"reward": torch.tensor(REWARDS, dtype=torch.float64)},
            behaviour_log_prob=tensors["behaviour"],
            reference_log_prob=tensors["reference"] if objective.needs_reference else None,
        ),
        objective.init(),
    )
    tensors["advantage"] = batch.advantage.expand(12, 5) * tensors["mask"]
    live = tensors["live"].clone().requires_grad_()
    loss = objective.loss(Scored(live, entropy=tensors["entropy"]), objective.plan(batch)).total
    return tensors, float(loss.detach()), torch.autograd.grad(loss, live)[0]


def prime_rl(objective: Objective, tensors: dict[str, Tensor], live: Tensor) -> Tensor:
    """Two prompt tokens before each answer; the sum over sequences, divided by the trained tokens of the step."""
    function = recipe("prime_rl")["policy_loss"]

    def sequence(values: Tensor, row: int) -> Tensor:
        return torch.cat([torch.zeros(2, dtype=values.dtype), values[row, : LENGTHS[row]]])

    outputs = [
        function(
            LossInputs(
                sequence(live, row),
                sequence(tensors["behaviour"], row),
                None,
                sequence(tensors["advantage"], row),
                sequence(tensors["mask"], row),
            ),
            method=objective.name,
        )
        for row in range(12)
    ]
    assert all(not value.shape for value in outputs[0].metrics.values())
    return torch.stack([output.loss for output in outputs]).sum() / TOKENS


def nemo_rl(objective: Objective, tensors: dict[str, Tensor], live: Tensor) -> Tensor:
    """One prompt token first; a micro-batch with a sample that is masked; shares of the step are summed."""
    loss = recipe("nemo_rl")["GroupwiseLoss"](objective.name)
    names = {
        "advantages": "advantage",
        "prev_logprobs": "old",
        "generation_logprobs": "behaviour",
        "reference_policy_logprobs": "reference",
        "token_mask": "mask",
    }
    total = torch.zeros((), dtype=torch.float64)
    for micro_batch in MICRO_BATCHES:
        rows = torch.tensor([*micro_batch, 0])
        data = {
            column: torch.cat([torch.full((4, 1), 7.0, dtype=torch.float64), tensors[name][rows].double()], 1)
            for column, name in names.items()
        }
        data["sample_mask"] = torch.tensor([1.0, 1.0, 1.0, 0.0])
        share, metrics = loss(live[rows], data, torch.tensor(12.0), torch.tensor(float(TOKENS)))
        assert metrics["num_valid_samples"] == 3
        total = total + share
    return total


def slime(objective: Objective, tensors: dict[str, Tensor], live: Tensor) -> Tensor:
    """Packed micro-batches; the sum is divided by the answers of the step, or by its tokens."""
    per_token = objective.aggregation.kind == "token_mean"
    function = recipe("slime", objective.name)["policy_loss"]
    names = {
        "advantages": "advantage",
        "log_probs": "old",
        "rollout_log_probs": "behaviour",
        "ref_log_probs": "reference",
        "loss_masks": "mask",
    }
    total = torch.zeros((), dtype=torch.float64)
    for rows in MICRO_BATCHES:
        lengths = [LENGTHS[row] for row in rows]
        batch: dict[str, Any] = {
            column: [tensors[name][row, : LENGTHS[row]] for row in rows] for column, name in names.items()
        }
        batch |= {"unconcat_tokens": [], "total_lengths": lengths, "response_lengths": lengths}
        logits = torch.cat([live[row, : LENGTHS[row]] for row in rows])[None, :, None]
        args = SimpleNamespace(calculate_per_token_loss=per_token, use_rollout_logprobs=False)
        share, log = function(args, batch, logits, None)
        assert torch.equal(log["loss"], share.detach())
        total = total + share
    return total / (TOKENS if per_token else 12)


def openrlhf(objective: Objective, tensors: dict[str, Tensor], live: Tensor) -> Tensor:
    """Two processes, whose gradients are averaged, of two micro-batches each."""
    module = recipe("openrlhf")["GroupwisePolicyLoss"](objective.name)
    total = torch.zeros((), dtype=torch.float64)
    for micro_batch in MICRO_BATCHES:
        rows = torch.tensor(micro_batch)
        loss, clip_ratio, moved, gap = module(
            live[rows],
            tensors["old"][rows],
            tensors["advantage"][rows],
            action_mask=tensors["mask"][rows],
            rollout_log_probs=tensors["behaviour"][rows],
            dp_size=2,
            batch_num_tokens=TOKENS,
            global_batch_size=12,
        )
        assert 0 <= float(clip_ratio) <= 1
        assert moved.isfinite()
        assert gap is None
        total = total + loss / 2
    return total


ROUTES: dict[str, Callable[[Objective, dict[str, Tensor], Tensor], Tensor]] = {
    "prime_rl": prime_rl,
    "nemo_rl": nemo_rl,
    "slime": slime,
    "openrlhf": openrlhf,
}


@pytest.mark.parametrize(("page", "name"), CASES)
def test_value_and_gradient_are_the_objectives(page: str, name: str) -> None:
    objective = Objective.preset(name)
    tensors, value, gradient = tensors_of(objective, sampler_is_old=page == "prime_rl")
    live = tensors["live"].clone().requires_grad_()
    loss = ROUTES[page](objective, tensors, live)
    assert float(loss.detach()) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert float((torch.autograd.grad(loss, live)[0] - gradient).norm()) <= 1e-9 * float(gradient.norm())


@pytest.mark.parametrize("page", SYSTEMS)
def test_the_page_lists_the_presets_that_are_carried(page: str) -> None:
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    listed = re.search(r"^Presets whose loss it carries: (.*?)\.\s", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == carried(page)
    assert "**Not run here**" in text


@pytest.mark.parametrize(
    ("name", "edits", "expected"),
    [
        ("gspo", {}, "write aggregation.kind as one of token_mean"),
        ("dapo", {"entropy": 0.01}, "write entropy = 0"),
        ("reinforce_pp", {}, "write divergence.place = 'loss', or divergence.kind = 'none'"),
        ("dapo", {"divergence.kind": "k3", "divergence.beta": 0.1}, "a KL term of prime-rl's own"),
        ("clip_cov", {}, "write trust.kind = 'clip'"),
    ],
)
def test_what_a_system_cannot_carry_is_one_line(name: str, edits: dict[str, Any], expected: str) -> None:
    inputs = LossInputs(*(torch.zeros(2) for _ in range(2)), None, torch.ones(2), torch.ones(2).bool())
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        recipe("prime_rl")["policy_loss"](inputs, method=name, **edits)
    assert "prime-rl" in str(error.value)
    assert "\n" not in str(error.value)


def test_log_probs_that_were_not_recorded_are_named() -> None:
    objective = Objective.preset("grpo+tis", **{"divergence.kind": "none"})
    loss = micro_batch_loss(objective, "my trainer", passes=SAMPLER)
    ones = torch.ones(2, 2)
    with pytest.raises(ValueError, match="reads behaviour_log_prob, and my trainer passed none; switch them on in my"):
        loss(-ones, -ones, ones, ones)


def test_slime_with_another_divisor_is_refused() -> None:
    function = recipe("slime")["policy_loss"]
    args = SimpleNamespace(calculate_per_token_loss=True, use_rollout_logprobs=False)
    with pytest.raises(ValueError, match="--calculate-per-token-loss has to be False for member_mean"):
        function(args, {}, torch.zeros(1, 3, 1), None)
