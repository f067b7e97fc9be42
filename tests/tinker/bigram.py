"""A bigram policy as a server of the Tinker API keeps it: its losses are reduced by any of the servers' rules, and
AdamW steps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

VOCABULARY = 32
Datum = tuple[Sequence[int], Mapping[str, Sequence[float]]]
"""Input ids and the per-token columns, as `Sequenced.columns` returns them."""


class Bigram:
    """`p(next | last) = softmax(table[last])`."""

    def __init__(self, reduction: str, *, clips: bool = False) -> None:
        self.reduction, self.clips = reduction, clips
        self.table = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64, requires_grad=True)
        self.moments = [torch.zeros_like(self.table.detach()) for _ in range(2)]
        self.num_steps = 0
        self.queue: list[Datum] = []

    def log_probs(self, datum: Datum) -> torch.Tensor:
        ids, columns = datum
        target = torch.tensor(columns["target_tokens"])
        return self.table[torch.tensor(ids)].log_softmax(-1).gather(1, target[:, None])[:, 0]

    def sample(self, context: Sequence[int], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        tokens, values, last = list[int](), list[float](), context[-1]
        for _ in range(settings["max_tokens"]):
            log_probs = self.table[last].detach().log_softmax(-1)
            greedy = settings["temperature"] == 0
            last = int(log_probs.argmax() if greedy else log_probs.exp().multinomial(1, generator=generator))
            tokens.append(last)
            values.append(float(log_probs[last]))
            if last in settings["stop"]:
                return {"stop_reason": "stop", "tokens": tokens, "logprobs": values}
        return {"stop_reason": "length", "tokens": tokens, "logprobs": values}

    def loss(self) -> torch.Tensor:
        losses, counts = [], []
        for datum in self.queue:
            columns = {name: torch.tensor(values) for name, values in datum[1].items()}
            ratio = (self.log_probs(datum) - columns["logprobs"]).exp()
            losses.append(-(columns["weights"] * columns["advantages"] * ratio).sum())
            counts.append(columns["weights"].sum())
        if self.reduction == "mean_sequence":
            return torch.stack([loss / count for loss, count in zip(losses, counts, strict=True)]).mean()
        total = torch.stack(losses).sum()
        if self.reduction == "mean_batch":
            return total / sum(counts)
        return total.abs() if self.reduction == "sign" else total

    def step(self, numbers: Mapping[str, float]) -> dict[str, float]:
        (gradient,) = torch.autograd.grad(self.loss(), self.table)
        self.queue = []
        norm = float(gradient.norm())
        if self.clips and 0 < numbers["grad_clip_norm"] < norm:
            gradient = gradient * (numbers["grad_clip_norm"] / norm)
        self.num_steps += 1
        betas = numbers["beta1"], numbers["beta2"]
        first, second = (
            beta * moment + (1 - beta) * gradient**power
            for beta, moment, power in zip(betas, self.moments, (1, 2), strict=True)
        )
        self.moments = [first, second]
        first, second = (moment / (1 - beta**self.num_steps) for beta, moment in zip(betas, self.moments, strict=True))
        with torch.no_grad():
            self.table -= numbers["learning_rate"] * first / (second.sqrt() + numbers["eps"])
        return {"grad_norm": norm}

    def state(self) -> tuple[torch.Tensor, list[torch.Tensor], int]:
        return self.table.detach().clone(), list(self.moments), self.num_steps

    def load(self, state: tuple[torch.Tensor, list[torch.Tensor], int], *, moments: bool) -> None:
        with torch.no_grad():
            self.table.copy_(state[0])
        if moments:
            _, self.moments, self.num_steps = state
        else:
            self.moments, self.num_steps = [torch.zeros_like(state[0])] * 2, 0
