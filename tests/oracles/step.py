"""A whole training run in a straight line: from a model folder and the recorded rollouts to the weights that the
trainer must end at.

torch, transformers and numpy, and nothing of `groupwise`: no scorer, head, sampler, adapter, optimiser or objective of
the trainer. A member is forwarded alone, without padding; an adapter is `W + s B A`, written out; the optimiser is
AdamW, written out. What is read of the run folder is data: `rollouts/` (token ids, rewards, settings) and, for an
adapter, its tensors before the first step (`checkpoints/step-0`). The loss is `tests.oracles.step_loss`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tests.oracles.step_loss import METHODS, Answer, Method, loss
from torch import Tensor, nn
from torch.distributed.checkpoint import load
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.func import functional_call
from transformers import AutoModelForCausalLM, AutoTokenizer

ADAPTED = "/learner/weights/base_model.model."


@dataclass(frozen=True)
class Settings:
    """What a person reads in the configuration of a run."""

    method: str
    seed: int
    num_steps: int
    minibatches: int
    updates_per_batch: int
    learning_rate: float
    warm_up_steps: int
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    max_grad_norm: float
    reward_weights: dict[str, float]
    entropy: float
    supervised: float
    demonstrations_per_step: int
    lora_scale: float | None = None


class Policy:
    """A model of transformers as a function of its trained weights: all of them, or an adapter's two factors for each
    layer it sits on.
    """

    def __init__(self, model: nn.Module, adapter: dict[str, Tensor] | None, scale: float | None) -> None:
        self.model, self.scale = model, scale
        self.base = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        start = self.base if adapter is None else adapter
        self.trained = {name: weight.clone().requires_grad_() for name, weight in start.items()}

    def weights(self) -> dict[str, Tensor]:
        """Every weight of the model, the adapter merged into those it sits on."""
        if self.scale is None:
            return self.trained
        merged = dict(self.base)
        for name in (name.removesuffix(".lora_A") for name in self.trained if name.endswith(".lora_A")):
            update = self.scale * self.trained[f"{name}.lora_B"] @ self.trained[f"{name}.lora_A"]
            # GPT-2 keeps its matrices the other way round.
            turned = type(self.model.get_submodule(name)).__name__ == "Conv1D"
            merged[f"{name}.weight"] = self.base[f"{name}.weight"] + (update.T if turned else update)
        return merged

    def predict(self, member: Member, temperature: float, weights: dict[str, Tensor]) -> Tensor:
        """Log-probs `[decisions, vocabulary]` at the member's decisions."""
        ids = torch.tensor([[*member.prompt, *member.tokens]])
        logits = functional_call(
            self.model, weights, (), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        ).logits[0, len(member.prompt) - 1 : -1]
        return torch.log_softmax(logits / temperature, dim=-1)[member.mask]

    def log_probs(self, member: Member, temperature: float, weights: dict[str, Tensor]) -> Tensor:
        """Those of the tokens that were chosen."""
        return self.predict(member, temperature, weights).gather(1, member.chosen[:, None])[:, 0]


@dataclass
class Member:
    """Tokens, which of them were decisions, and what is known of them."""

    prompt: list[int]
    tokens: list[int]
    mask: Tensor
    group: int = 0
    reward: float = 0.0
    temperature: float = 1.0
    top_p: float = 1.0

    @property
    def chosen(self) -> Tensor:
        """The tokens that were decisions."""
        return torch.tensor(self.tokens)[self.mask]


def replay(
    run: Path, model: Path, corpus: Path, settings: Settings, touch: Callable[[nn.Module], None] = lambda module: None
) -> Policy:
    """The policy after `settings.num_steps` steps.

    `corpus` holds the demonstrations, one `{"prompt": ..., "shown": ...}` a line; `touch` may change the model, to see
    how much a change inside it moves the end.
    """
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).eval()
    touch(module)
    policy = Policy(module, None if settings.lora_scale is None else first_adapter(run), settings.lora_scale)
    shown = demonstrations(corpus, AutoTokenizer.from_pretrained(model))
    moments = {name: (torch.zeros_like(weight), torch.zeros_like(weight)) for name, weight in policy.trained.items()}
    updates = 0
    for step in range(settings.num_steps):
        rate = settings.learning_rate * min(1.0, (step + 1) / settings.warm_up_steps)
        members = recorded(run / "rollouts" / f"step-{step + 1}.jsonl", settings)
        batch = begun(policy, members, METHODS[settings.method])
        for part in parts(members, settings, step):
            total = loss(
                METHODS[settings.method], [live(policy, members[at], batch[at]) for at in part], settings.entropy
            )
            drawn = stream(settings.seed, "demonstrations", updates).choice(
                len(shown), settings.demonstrations_per_step, replace=False
            )
            total = total + settings.supervised * cross_entropy(policy, [shown[at] for at in drawn])
            gradients = torch.autograd.grad(total, list(policy.trained.values()))
            updates += 1
            adamw(policy.trained, moments, clipped(gradients, settings.max_grad_norm), rate, updates, settings)
    return policy


def recorded(path: Path, settings: Settings) -> list[Member]:
    """The members of a step that count. A token without a log-prob was no decision: an environment wrote it."""
    members = []
    for record in counted(path, settings):
        mask = torch.tensor([value is not None for value in record["token_log_prob"]])
        how = record["settings"]
        members.append(
            Member(
                record["prompt_ids"],
                record["token_ids"],
                mask,
                record["group"],
                earned(record, settings),
                how["temperature"],
                how["top_p"],
            )
        )
    return members


def counted(path: Path, settings: Settings) -> list[dict[str, Any]]:
    """The records of members that have every reward that a member of their group has; the others were not sampled."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    asked: dict[int, set[str]] = {}
    for record in records:
        asked.setdefault(record["group"], set()).update(present(record, settings))
    return [record for record in records if present(record, settings) == asked[record["group"]]]


def present(record: dict[str, Any], settings: Settings) -> set[str]:
    """The rewards with a weight that a member has: a conversation that was cut off lacks one."""
    return {name for name in settings.reward_weights if record["rewards"][name] is not None}


def earned(record: dict[str, Any], settings: Settings) -> float:
    """The weighted sum of a member's rewards."""
    return sum(settings.reward_weights[name] * record["rewards"][name] for name in present(record, settings))


def begun(policy: Policy, members: Sequence[Member], method: Method) -> list[Answer]:
    """Every member under the policy that the batch begins with and under the reference, which is the model as it was
    loaded; and its advantage.
    """
    answers = []
    with torch.no_grad():
        now = policy.weights()
        for member in members:
            old = policy.predict(member, member.temperature, now)
            reference = policy.log_probs(member, member.temperature, policy.base)
            chosen = old.gather(1, member.chosen[:, None])[:, 0]
            answers.append(Answer(chosen, chosen, reference, nucleus(old, member.top_p), torch.zeros_like(chosen), 0.0))
    rewards = [
        member.reward - method.in_reward * float((answer.old - answer.reference).sum())
        for member, answer in zip(members, answers, strict=True)
    ]
    groups = [0] * len(members) if method.whole_batch else [member.group for member in members]
    for group in set(groups):
        places = [place for place, other in enumerate(groups) if other == group]
        for place, advantage in zip(places, method.advantage([rewards[place] for place in places]), strict=True):
            answers[place].advantage = advantage
    return answers


def nucleus(log_prob: Tensor, top_p: float) -> Tensor:
    """The mass of the smallest set of most likely tokens that reaches `top_p`, decision by decision: what the sampler
    drew from.
    """
    masses = []
    for row in log_prob.exp().numpy():
        mass = 0.0
        for probability in np.sort(row)[::-1]:
            if mass >= top_p:
                break
            mass += float(probability)
        masses.append(mass)
    return torch.tensor(masses, dtype=torch.float64)


def live(policy: Policy, member: Member, answer: Answer) -> Answer:
    """The member under the policy as it is, with gradient."""
    predicted = policy.predict(member, member.temperature, policy.weights())
    chosen = predicted.gather(1, member.chosen[:, None])[:, 0]
    entropy = -(predicted.exp() * predicted).sum(1)
    return Answer(chosen, answer.old, answer.reference, answer.kept, entropy, answer.advantage)


def parts(members: Sequence[Member], settings: Settings, step: int) -> list[list[int]]:
    """Which members each optimiser step takes: whole groups, dealt out by a permutation that the seed, the step and the
    pass name.
    """
    groups = sorted({member.group for member in members})
    dealt = []
    for number in range(settings.updates_per_batch):
        order = list(range(len(groups)))
        if settings.minibatches > 1:
            order = stream(settings.seed, "minibatches", step, number).permutation(len(groups)).tolist()
        ends = [round(part * len(groups) / settings.minibatches) for part in range(settings.minibatches + 1)]
        for start, end in itertools.pairwise(ends):
            taken = {groups[place] for place in order[start:end]}
            dealt.append([place for place, member in enumerate(members) if member.group in taken])
    return dealt


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
    """Numbers for one purpose: numpy's generator, seeded by 63 bits of blake2b of the run's seed, the purpose and its
    key.
    """
    text = "\x1f".join([repr(seed), name, *map(repr, key)])
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1)


def demonstrations(corpus: Path, tokenizer: Any) -> list[Member]:
    """Texts to learn by heart, each ended by the end token; every token counts."""
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    ids = [
        (tokenizer(row["prompt"])["input_ids"], [*tokenizer(row["shown"])["input_ids"], tokenizer.eos_token_id])
        for row in rows
    ]
    return [Member(prompt, tokens, torch.ones(len(tokens), dtype=torch.bool)) for prompt, tokens in ids]


def cross_entropy(policy: Policy, shown: Sequence[Member]) -> Tensor:
    """The mean over all their tokens, at temperature 1."""
    log_prob = torch.cat([policy.log_probs(member, 1.0, policy.weights()) for member in shown])
    return -log_prob.sum() / len(log_prob)


def clipped(gradients: Sequence[Tensor], most: float) -> list[Tensor]:
    """All gradients, scaled together so that their norm is at most `most` (PyTorch adds 1e-6 to the norm)."""
    norm = torch.sqrt(sum((gradient.square().sum() for gradient in gradients), torch.zeros((), dtype=torch.float64)))
    return [gradient * min(1.0, most / (float(norm) + 1e-6)) for gradient in gradients]


def adamw(
    trained: dict[str, Tensor],
    moments: dict[str, tuple[Tensor, Tensor]],
    gradients: Sequence[Tensor],
    rate: float,
    count: int,
    settings: Settings,
) -> None:
    """arXiv 1711.05101, algorithm 2, in place; only matrices decay."""
    with torch.no_grad():
        for (name, weight), gradient in zip(trained.items(), gradients, strict=True):
            first, second = moments[name]
            first = settings.beta1 * first + (1 - settings.beta1) * gradient
            second = settings.beta2 * second + (1 - settings.beta2) * gradient**2
            moments[name] = first, second
            direction = (
                first / (1 - settings.beta1**count) / (torch.sqrt(second / (1 - settings.beta2**count)) + settings.eps)
            )
            decay = settings.weight_decay if weight.dim() >= 2 else 0.0
            weight.copy_(weight - rate * decay * weight - rate * direction)


def first_adapter(run: Path) -> dict[str, Tensor]:
    """An adapter's tensors before the first step, as `LAYER.lora_A` and `LAYER.lora_B`."""
    return adapter_at(run, 0)


def adapter_at(run: Path, step: int) -> dict[str, Tensor]:
    """An adapter's tensors in the checkpoint of a step, also of processes that each wrote their shards."""
    folder = run / "checkpoints" / f"step-{step}"
    tensors = load_file(folder / "tensors.safetensors")
    if (folder / "shards").is_dir():
        reader = HuggingFaceStorageReader(str(folder / "shards"))
        stored = reader.read_metadata().state_dict_metadata
        tensors |= {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items()}
        load({name: tensors[name] for name in stored}, storage_reader=reader, no_dist=True)
    short = {
        name.removeprefix(ADAPTED).removesuffix(".default.weight"): tensor
        for name, tensor in tensors.items()
        if name.startswith(ADAPTED)
    }
    return {name: tensor for name, tensor in short.items() if name.endswith(("lora_A", "lora_B"))}
