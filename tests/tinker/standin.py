"""A stand-in for the SDK's service: a bigram policy without a connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.tinker.bigram import Bigram, Datum

from groupwise_tinker.client import Adapter, Background, Service
from groupwise_tinker.config import Tinker


class Training:
    """The SDK's training client of a bigram policy."""

    def __init__(self, policy: Bigram, fault: Callable[[str], None] | None = None) -> None:
        self._fault = fault or (lambda name: None)
        self.policy, self.shapes = policy, set[tuple[int, int]]()
        self.saved: dict[str, Any] = {}

    def _guaranteed_model_id(self) -> str:
        return "model"

    def forward(self, data: Any, loss: str) -> Any:
        self._fault("forward")
        self.shapes.add((len(data), len(data[0].model_input)))
        rows = [{"logprobs": SimpleNamespace(data=self.policy.log_probs(_plain(datum)).tolist())} for datum in data]
        return SimpleNamespace(result=lambda: SimpleNamespace(loss_fn_outputs=rows))

    def forward_backward(self, data: Any, loss: str) -> Any:
        self._fault("forward_backward")
        assert loss == "importance_sampling"
        self.policy.queue += map(_plain, data)
        return SimpleNamespace(result=lambda: None)

    def optim_step(self, numbers: Any) -> Any:
        self._fault("optim_step")
        metrics = self.policy.step(vars(numbers))
        return SimpleNamespace(result=lambda: SimpleNamespace(metrics=metrics))

    def save_state(self, name: str) -> Any:
        self.saved[name] = self.policy.state()
        return SimpleNamespace(result=lambda: SimpleNamespace(path=name))

    def load_state(self, path: str) -> Any:
        self.policy.load(self.saved[path], moments=False)
        return SimpleNamespace(result=lambda: None)

    def load_state_with_optimizer(self, path: str) -> Any:
        self.policy.load(self.saved[path], moments=True)
        return SimpleNamespace(result=lambda: None)


def service(
    reduction: str, fault: Callable[[str], None] | None = None, seconds: float = 60.0, *, clips: bool = False
) -> Service:
    """Returns a service without a connection, whose one adapter is a bigram policy."""
    connection = Service.__new__(Service)
    connection.config = Tinker(address="http://127.0.0.1:1", base_model="bigram", timeout_seconds=seconds)
    connection._background, connection._adapters, connection._session = Background(), [], None  # pyright: ignore
    types = SimpleNamespace(
        ModelInput=SimpleNamespace(from_ints=list),
        TensorData=lambda data, dtype, shape: SimpleNamespace(data=data),
        Datum=lambda model_input, loss_fn_inputs: SimpleNamespace(
            model_input=model_input, loss_fn_inputs=loss_fn_inputs
        ),
    )
    connection.sdk = SimpleNamespace(types=types, AdamParams=lambda **values: SimpleNamespace(**values))
    training = Training(Bigram(reduction, clips=clips), fault)
    connection.adapter = lambda seed: Adapter(connection, training)
    return connection


def _plain(datum: Any) -> Datum:
    return datum.model_input, {name: values.data for name, values in datum.loss_fn_inputs.items()}


def slow(name: str) -> None:
    """Never answers in time."""
    threading.Event().wait(5)
