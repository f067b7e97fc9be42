"""The calls to a server that speaks the Tinker API, each with a deadline and with one line for a failure."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import re
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypeVar, final
from weakref import WeakSet

from groupwise.config import ConfigError
from groupwise.learner.protocol import StepNumbers
from groupwise_tinker.config import Tinker

_OWNER = contextvars.ContextVar["Background | None"]("_OWNER", default=None)


@final
class Background:
    """The tasks on the SDK's event loop that began in `owning`, those that such tasks began among them.

    Example:
        >>> loop, background = asyncio.new_event_loop(), Background()
        >>> background.follow(loop)
        >>> async def beat() -> None:
        ...     await asyncio.sleep(3600)
        >>> async def begin() -> "asyncio.Task[None]":
        ...     return asyncio.create_task(beat())
        >>> with background.owning():
        ...     heartbeat = loop.run_until_complete(begin())
        >>> background.end()
        >>> loop.run_until_complete(asyncio.wait([heartbeat]))[0] == {heartbeat}, heartbeat.cancelled()
        (True, True)
        >>> loop.close()
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = WeakSet[Any]()

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notes from now on which owner began which task of a loop."""
        self._loop = loop
        factory: Any = loop.get_task_factory()
        if not isinstance(factory, _NotingFactory):
            loop.set_task_factory(_NotingFactory(factory))

    @contextmanager
    def owning(self) -> Iterator[None]:
        """Makes this object the owner of every task that the calling thread begins within the block."""
        token = _OWNER.set(self)
        try:
            yield
        finally:
            _OWNER.reset(token)

    def note(self, task: Any) -> None:
        """Notes a task that begins; called on the loop's thread."""
        self._tasks.add(task)

    def end(self) -> None:
        """Cancels the tasks that have not ended; whoever waits for one of them gets a `CancelledError`."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


@final
class _NotingFactory:
    """Makes tasks as a loop makes them, and tells their owner.

    A task inherits the context of what began it, also across threads, and its owner with it.
    """

    def __init__(self, factory: Callable[..., Any] | None) -> None:
        self._factory = factory or (lambda loop, work, **settings: asyncio.Task(work, loop=loop, **settings))

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **settings: Any) -> Any:
        task = self._factory(loop, work, **settings)
        if (owner := _OWNER.get()) is not None:
            owner.note(task)
        return task


@final
@dataclass(frozen=True)
class Sequenced:
    """One member as the server scores it.

    Args:
        prompt: token ids, at least one.
        tokens: token ids of the completion.
        mask: true where the policy chose the token.

    Example:
        >>> Sequenced([5, 6], [7, 8], [True, False]).num_decisions
        1
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    mask: Sequence[bool]

    @property
    def num_decisions(self) -> int:
        """The number of tokens that the policy chose."""
        return sum(self.mask)

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and completion, by which scores are remembered."""
        return tuple(self.prompt), tuple(self.tokens)

    def columns(self, length_multiple: int, **values: Sequence[float]) -> tuple[list[int], dict[str, list[Any]]]:
        """Returns the input ids and the per-token columns, `target_tokens` among them.

        A column is 0 on the prompt, where the mask is false and on the padding.

        Args:
            length_multiple: the number of input ids is filled up to a multiple of this.
            values: numbers for every token of the completion.
        """
        text = [*self.prompt, *self.tokens]
        padding = -(len(text) - 1) % length_multiple
        before = [0.0] * (len(self.prompt) - 1)
        columns: dict[str, list[Any]] = {"target_tokens": [*text[1:], *[0] * padding]}
        for name, column in {"weights": [1.0] * len(self.tokens), **values}.items():
            masked = [float(value) if chosen else 0.0 for value, chosen in zip(column, self.mask, strict=True)]
            columns[name] = [*before, *masked, *[0.0] * padding]
        return [*text[:-1], *[0] * padding], columns

    def completion(self, log_probs: Sequence[float]) -> list[float]:
        """Cuts the server's log-probs of all places to those of the completion."""
        start = len(self.prompt) - 1
        return list(log_probs[start : start + len(self.tokens)])


_T = TypeVar("_T")
_HEALTH_SECONDS = 10.0
_MISSED_CHECKS = 3
"""A call is given up after this many health checks in a row without an answer from the server."""

_FULL = "Maximum number of LoRA adapters"
_RETRY_SECONDS = 5.0
_LARGEST_ARCHIVE = 1 << 36


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
                'model.kind = "tinker" needs the SDK, which is not installed; write pip install tinker, and for'
                " SkyRL 0.3.0 pip install tinker==0.24.1"
            ) from None
        self.sdk: Any = tinker
        check_health(config)
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self._background, self._adapters, self._session = Background(), list[Adapter](), None
        try:
            self._client: Any = self.call("connect", self._connect)
            capabilities = self.call("get_server_capabilities", self._client.get_server_capabilities)
            names = [model.model_name for model in capabilities.supported_models]
            if config.base_model not in names:
                raise ConfigError(
                    f"model.base_model = {config.base_model!r}: the server at {config.address} does not serve it;"
                    f" allowed: {', '.join(map(str, names[:20]))}"
                )
        except BaseException:
            self.close()
            raise

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
            with self._background.owning():
                try:
                    outcome.append(work())
                except Exception as error:
                    failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        place = f"model.address = {self.config.address!r}: {name}"
        self._wait(thread, place)
        if failure:
            raise TinkerError(f"{place} failed: {_one_line(failure[0])}") from failure[0]
        if not outcome:
            raise TinkerError(
                f"{place} gave no answer within model.timeout_seconds = {self.config.timeout_seconds}; is the server's"
                " engine alive? Look at the server's own log, or write a longer time"
            )
        return outcome[0]

    def _wait(self, thread: threading.Thread, place: str) -> None:
        """Waits for a call until its deadline, and no longer than the server answers health checks."""
        end, num_missed = time.monotonic() + self.config.timeout_seconds, 0
        while (seconds := end - time.monotonic()) > 0:
            thread.join(min(seconds, _HEALTH_SECONDS))
            if not thread.is_alive():
                return
            num_missed = 0 if health_failure(self.config) is None else num_missed + 1
            if num_missed >= _MISSED_CHECKS:
                raise TinkerError(
                    f"{place} was given up: the server no longer answers; start it again and go on with"
                    " `groupwise resume`"
                )

    def adapter(self, seed: int) -> Adapter:
        """Makes a LoRA adapter on the server, which begins as the base model and which `close` unloads.

        Where the server has no free place this call waits: a server frees the places of a client that died after some
        minutes.

        Args:
            seed: the seed of its initial weights.

        Raises:
            TinkerError: the server fails, or has no free place until the deadline.
        """
        config, end = self.config, time.monotonic() + self.config.timeout_seconds
        while True:
            try:
                training = self.call("create_lora_training_client", lambda: self._open_training(seed))
                self._session = training.holder
                self._adapters.append(Adapter(self, training))
                return self._adapters[-1]
            except TinkerError as error:
                if _FULL not in str(error):
                    raise
                if time.monotonic() > end:
                    raise TinkerError(
                        f"model.address = {config.address!r}: the server has no free place for an adapter ({error});"
                        " end another client, or start the server with more: 2 for a run, 3 where its reference changes"
                    ) from error
            time.sleep(_RETRY_SECONDS)

    def unload(self, model_id: str) -> None:
        """Frees the server's place of an adapter; a server that is gone by then, or does not know the adapter, is no
        error.
        """
        body = json.dumps({"model_id": model_id}).encode()
        headers = {"Content-Type": "application/json", "X-API-Key": _key()}
        url = f"{self.config.address.rstrip('/')}/api/v1/unload_model"
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=_HEALTH_SECONDS),
        ):
            pass

    def close(self) -> None:
        """Unloads the adapters and ends what the SDK still does for this connection: calls that were given up, and the
        session, whose heartbeats would go on until the process ends. A second call does nothing.
        """
        for adapter in self._adapters:
            adapter.unload()
        self._adapters.clear()
        if self._session is not None:
            self._session.close()
            self._session = None
        self._background.end()

    def download(self, path: str) -> bytes:
        """Returns the archive of weights that `Adapter.save_for_sampling` saved.

        Args:
            path: the path of the weights on the server.

        Raises:
            TinkerError: the server gives no archive, or one of more than 64 GiB.
        """
        rest = self._client.create_rest_client()

        def work() -> bytes:
            run, *folders, name = path.removeprefix("tinker://").split("/")
            if folders:
                url = rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
            else:  # SkyRL names the folder neither in its paths nor in its routes.
                url = rest.get_checkpoint_archive_url(run, name).result().url
            with urllib.request.urlopen(url, timeout=self.config.timeout_seconds) as reply:
                return reply.read(_LARGEST_ARCHIVE)

        return self.call("get_checkpoint_archive_url", work)

    def _connect(self) -> Any:
        client = self.sdk.ServiceClient(base_url=self.config.address.rstrip("/"), api_key=_key())
        with suppress(AttributeError):  # An SDK of another make ends with its session.
            self._background.follow(client.create_rest_client().holder.get_loop())
        return client

    def _open_training(self, seed: int) -> Any:
        config = self.config
        return self._client.create_lora_training_client(
            base_model=config.base_model, rank=config.rank, seed=seed % 2**31
        )


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
        filled = filled_rows(members, self.service.config.fewest_rows)
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
            grad_clip_norm=numbers.max_grad_norm or 0.0,
        )
        answer = self.service.call("optim_step", lambda: self._training.optim_step(parameters).result())
        self._sampler = None
        return answer.metrics or {}

    def save(self) -> str:
        """Saves weights and moments on the server and returns their path there."""
        name = f"groupwise-{uuid.uuid4().hex[:12]}"
        return self.service.call("save_state", lambda: self._training.save_state(name).result()).path

    def save_for_sampling(self) -> str:
        """Saves the adapter's weights on the server in the form of peft, and returns their path there."""
        name = f"groupwise-{uuid.uuid4().hex[:12]}"
        return self.service.call(
            "save_weights_for_sampler", lambda: self._training.save_weights_for_sampler(name).result()
        ).path

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
        """Frees the server's place of the adapter; a server that is gone by then is not an error."""
        if not self._unloaded:
            self._unloaded = True
            self.service.unload(self.model_id)

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


def filled_rows(members: Sequence[Sequenced], fewest: int) -> list[Sequenced]:
    """Repeats the last member until the number of members is `fewest` times a power of two: a compiling server compiles
    a program for every number, and the number of members with a gradient changes from step to step.

    Example:
        >>> member = Sequenced([5], [6], [True])
        >>> len(filled_rows([member] * 3, 8)), len(filled_rows([member] * 17, 8))
        (8, 32)
    """
    size = fewest
    while size < len(members):
        size *= 2
    return [*members, *[members[-1]] * (size - len(members))]


def health_failure(config: Tinker) -> str | None:
    """Asks the server whether it is well; returns a line about what failed, and None where it is."""
    url = f"{config.address.rstrip('/')}/api/v1/healthz"
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_SECONDS) as reply:
            status = json.loads(reply.read(1 << 16))["status"]
    except (OSError, HTTPException) as error:
        return _one_line(error)
    except (ValueError, LookupError, TypeError):
        return "what answers is no JSON with a status"
    return None if status == "ok" else f"its status is {str(status)[:100]!r}"


def check_health(config: Tinker) -> None:
    """Refuses an address at which no Tinker API answers.

    Raises:
        ConfigError: nothing answers, or something else.
    """
    if (failure := health_failure(config)) is not None:
        raise ConfigError(
            f"model.address = {config.address!r}: no Tinker API answers there ({failure}); start the server, or write"
            " the address of one, for example http://127.0.0.1:8000"
        )


def _key() -> str:
    return os.environ.get("TINKER_API_KEY", "tml-none")


def _one_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if "only supports as proto" in text:
        return "the server is older than the SDK; write pip install tinker==0.24.1 for this server"
    if detail := re.search(r"'detail': (?P<quote>['\"])(?P<text>.*?)(?P=quote)\}", text):
        text = detail["text"].replace("\\n", " ")
    return " ".join(text.split())[:300]
