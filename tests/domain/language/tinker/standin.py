"""A stand-in for the SDK's service: a small policy whose gradient is reduced by any of the servers' rules."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from groupwise.domain.language.model import Tinker
from groupwise.domain.language.tinker.client import Adapter, Service

VOCABULARY = 32


class Training:
    """The SDK's training client of a bigram model, `p(next | last) = softmax(table[last])`."""

    def __init__(self, reduction: str, fault: Callable[[str], None] | None = None) -> None:
        self._fault = fault or (lambda name: None)
        self.reduction = reduction
        self.table = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64, requires_grad=True)
        self.queue: list[Any] = []
        self.saved: dict[str, torch.Tensor] = {}
        self.shapes: set[tuple[int, int]] = set()

    def _guaranteed_model_id(self) -> str:
        return "model"

    def _log_probs(self, datum: Any) -> torch.Tensor:
        target = torch.tensor(datum.loss_fn_inputs["target_tokens"].data)
        return self.table[torch.tensor(datum.model_input)].log_softmax(-1).gather(1, target[:, None])[:, 0]

    def forward(self, data: Any, loss: str) -> Any:
        self._fault("forward")
        self.shapes.add((len(data), len(data[0].model_input)))
        rows = [{"logprobs": SimpleNamespace(data=self._log_probs(datum).tolist())} for datum in data]
        return SimpleNamespace(result=lambda: SimpleNamespace(loss_fn_outputs=rows))

    def forward_backward(self, data: Any, loss: str) -> Any:
        self._fault("forward_backward")
        assert loss == "importance_sampling"
        self.queue += data
        return SimpleNamespace(result=lambda: None)

    def optim_step(self, numbers: Any) -> Any:
        self._fault("optim_step")
        losses, counts = [], []
        for datum in self.queue:
            column = {name: torch.tensor(value.data) for name, value in datum.loss_fn_inputs.items()}
            ratio = (self._log_probs(datum) - column["logprobs"]).exp()
            losses.append(-(column["weights"] * column["advantages"] * ratio).sum())
            counts.append(column["weights"].sum())
        self.queue = []
        losses, counts = torch.stack(losses), torch.stack(counts)  # [N]
        loss = losses.sum()
        if self.reduction == "mean_sequence":
            loss = (losses / counts).mean()
        elif self.reduction == "mean_batch":
            loss = loss / counts.sum()
        elif self.reduction == "sign":
            loss = loss.abs()
        (gradient,) = torch.autograd.grad(loss, self.table)
        with torch.no_grad():
            self.table -= numbers.learning_rate / numbers.eps * gradient
        metrics = {"grad_norm": float(gradient.norm())}
        return SimpleNamespace(result=lambda: SimpleNamespace(metrics=metrics))

    def save_state(self, name: str) -> Any:
        self.saved[name] = self.table.detach().clone()
        return SimpleNamespace(result=lambda: SimpleNamespace(path=name))

    def load_state(self, path: str) -> Any:
        with torch.no_grad():
            self.table.copy_(self.saved[path])
        return SimpleNamespace(result=lambda: None)

    load_state_with_optimizer = load_state


def service(reduction: str, fault: Callable[[str], None] | None = None, seconds: float = 60.0) -> Service:
    """Returns a service without a connection, whose one adapter is a bigram model."""
    made = Service.__new__(Service)
    made.config = Tinker(address="http://127.0.0.1:1", base_model="bigram", timeout_seconds=seconds)
    numbers = SimpleNamespace(from_ints=list)
    types = SimpleNamespace(
        ModelInput=numbers,
        TensorData=lambda data, dtype, shape: SimpleNamespace(data=data),
        Datum=lambda model_input, loss_fn_inputs: SimpleNamespace(
            model_input=model_input, loss_fn_inputs=loss_fn_inputs
        ),
    )
    made.sdk = SimpleNamespace(types=types, AdamParams=lambda **values: SimpleNamespace(**values))
    training = Training(reduction, fault)
    made.adapter = lambda seed: Adapter(made, training)
    return made


def slow(name: str) -> None:
    """Never answers in time."""
    threading.Event().wait(5)
    time.sleep(0)


def dead(name: str) -> None:
    """Answers as a server without its engine."""
    raise RuntimeError("503 Service Unavailable:\n the engine is gone")
