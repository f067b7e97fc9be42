"""The calls to a server that speaks the Tinker API, each with a deadline and with one line for a failure."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

from groupwise.config import ConfigError
from groupwise.domain.language.model import Tinker
from groupwise.domain.language.tinker.data import Sequenced
from groupwise.learner.protocol import StepNumbers

_T = TypeVar("_T")
_HEALTH_SECONDS = 10.0


class TinkerError(RuntimeError):
    """The server does not answer in time, or refuses a call."""


@final
class Service:
    """A connection to one server; it makes adapters and unloads them.

    Args:
        config: address, base model and deadline.

    Raises:
        ConfigError: the SDK is not installed, nothing answers at the address, or the server lacks the base model.
    """

    def __init__(self, config: Tinker) -> None:
        self.config = config
        try:
            import tinker
        except ImportError:
            raise ConfigError(
                'model.kind = "tinker" needs the SDK, which is not installed; write pip install "groupwise[tinker]"'
            ) from None
        self.sdk: Any = tinker
        _check_health(config)
        key = os.environ.get("TINKER_API_KEY", "tml-none")
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self._client = self.call(
            "connect", lambda: tinker.ServiceClient(base_url=config.address.rstrip("/"), api_key=key)
        )
        capabilities = self.call("get_server_capabilities", self._client.get_server_capabilities)
        names = [model.model_name for model in capabilities.supported_models]
        if config.base_model not in names:
            raise ConfigError(
                f"model.base_model = {config.base_model!r}: the server at {config.address} does not serve it; allowed:"
                f" {', '.join(map(str, names[:20]))}"
            )

    def call(self, name: str, work: Callable[[], _T]) -> _T:
        """Returns what `work` returns, within the deadline.

        The SDK itself repeats a call after a lost connection and after the statuses 429 and 5xx.

        Args:
            name: the call, for the message.

        Raises:
            TinkerError: the call failed or took too long.
        """
        outcome: list[Any] = []
        failure: list[Exception] = []

        def run() -> None:
            try:
                outcome.append(work())
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.config.timeout_seconds)
        place = f"model.address = {self.config.address!r}: {name}"
        if failure:
            raise TinkerError(f"{place} failed: {_one_line(failure[0])}") from failure[0]
        if not outcome:
            raise TinkerError(
                f"{place} gave no answer within model.timeout_seconds = {self.config.timeout_seconds}; is the server's"
                " engine alive? Look at the server's own log, or write a longer time"
            )
        return outcome[0]

    def adapter(self, seed: int) -> Adapter:
        """Makes a LoRA adapter on the server, which begins as the base model.

        Args:
            seed: of its initial weights.
        """
        config = self.config
        training = self.call(
            "create_lora_training_client",
            lambda: self._client.create_lora_training_client(
                base_model=config.base_model, rank=config.rank, seed=seed % 2**31
            ),
        )
        return Adapter(self, training)


@final
class Adapter:
    """One LoRA adapter of the server with its gradient and its optimiser.

    Args:
        service: the connection.
        training: the SDK's training client.
    """

    def __init__(self, service: Service, training: Any) -> None:
        self.service, self._training, self._sampler = service, training, None
        self.model_id = training._guaranteed_model_id()
        self._unloaded = False

    def log_probs(self, members: Sequence[Sequenced]) -> list[list[float]]:
        """Returns nats for every token of each completion, under the weights as they are."""
        if not members:
            return []
        filled = filled_rows(members, self.service.config.row_multiple)
        data = [self._datum(member) for member in filled]
        answer = self.service.call("forward", lambda: self._training.forward(data, "cross_entropy").result())
        outputs = answer.loss_fn_outputs[: len(members)]
        return [member.completion(output["logprobs"].data) for member, output in zip(members, outputs, strict=True)]

    def accumulate(
        self,
        members: Sequence[Sequenced],
        log_probs: Sequence[Sequence[float]],
        advantages: Sequence[Sequence[float]],
    ) -> None:
        """Sends the gradient of `-sum(advantage * ratio)` over the members, reduced by the server's rule."""
        data = [
            self._datum(member, logprobs=old, advantages=advantage)
            for member, old, advantage in zip(members, log_probs, advantages, strict=True)
        ]
        self.service.call(
            "forward_backward", lambda: self._training.forward_backward(data, "importance_sampling").result()
        )

    def step(self, numbers: StepNumbers) -> Mapping[str, float]:
        """Takes one step of the server's AdamW and returns the server's metrics."""
        parameters = self.service.sdk.AdamParams(
            learning_rate=numbers.learning_rate,
            beta1=numbers.beta1,
            beta2=numbers.beta2,
            eps=numbers.eps,
            weight_decay=numbers.weight_decay,
        )
        answer = self.service.call("optim_step", lambda: self._training.optim_step(parameters).result())
        self._sampler = None
        return answer.metrics or {}

    def save(self) -> str:
        """Saves weights and moments on the server and returns their path there."""
        name = f"groupwise-{uuid.uuid4().hex[:12]}"
        return self.service.call("save_state", lambda: self._training.save_state(name).result()).path

    def load(self, path: str, *, moments: bool = True) -> None:
        """Loads what `save` saved, of this adapter or another of the same rank.

        Args:
            moments: whether the optimiser's moments are loaded too.
        """
        load = self._training.load_state_with_optimizer if moments else self._training.load_state
        self.service.call("load_state", lambda: load(path).result())
        self._sampler = None

    def sample(self, requests: Sequence[tuple[Sequence[int], int, int, int]], temperature: float, stop: Sequence[int]):
        """Samples for all requests at once.

        Args:
            requests: context, number of samples, most tokens and seed of each.
            temperature: 1, or 0 for the most likely tokens.
            stop: ids that end a completion.

        Returns:
            for each request its sequences, each with `tokens`, `logprobs` and `stop_reason`.
        """
        types = self.service.sdk.types

        def work() -> list[Any]:
            if self._sampler is None:
                self._sampler = self._training.save_weights_and_get_sampling_client()
            futures = [
                self._sampler.sample(
                    types.ModelInput.from_ints(list(context)),
                    num_samples=num_samples,
                    sampling_params=types.SamplingParams(
                        max_tokens=num_tokens, temperature=temperature, seed=seed % 2**31, stop=list(stop)
                    ),
                )
                for context, num_samples, num_tokens, seed in requests
            ]
            return [future.result().sequences for future in futures]

        return self.service.call("sample", work)

    def unload(self) -> None:
        """Frees the server's place of the adapter; a server that is gone by then is no error."""
        if self._unloaded:
            return
        self._unloaded = True
        config = self.service.config
        body = json.dumps({"model_id": self.model_id}).encode()
        headers = {"Content-Type": "application/json", "X-API-Key": os.environ.get("TINKER_API_KEY", "tml-none")}
        url = f"{config.address.rstrip('/')}/api/v1/unload_model"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=_HEALTH_SECONDS):
                pass
        except OSError:
            pass

    def _datum(self, member: Sequenced, **values: Sequence[float]) -> Any:
        types = self.service.sdk.types
        ids, columns = member.columns(self.service.config.length_multiple, **values)
        inputs = {
            name: types.TensorData(
                data=column, dtype="int64" if name == "target_tokens" else "float32", shape=[len(column)]
            )
            for name, column in columns.items()
        }
        return types.Datum(model_input=types.ModelInput.from_ints(ids), loss_fn_inputs=inputs)


def filled_rows(members: Sequence[Sequenced], row_multiple: int) -> list[Sequenced]:
    """Repeats the last member until the number of members is a multiple of `row_multiple`.

    Example:
        >>> member = Sequenced([5], [6], [True])
        >>> len(filled_rows([member] * 3, 8))
        8
    """
    return [*members, *[members[-1]] * (-len(members) % row_multiple)]


def _check_health(config: Tinker) -> None:
    url = f"{config.address.rstrip('/')}/api/v1/healthz"
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_SECONDS) as reply:
            reply.read(1 << 16)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.address = {config.address!r}: no Tinker API answers there ({_one_line(error)}); start the server,"
            " or write the address of one, for example http://127.0.0.1:8000"
        ) from None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if "only supports as proto" in text:
        return "the server is older than the SDK; write pip install tinker==0.24.1 for this server"
    return text
