"""The learner whose weights, gradient and optimiser are a server's."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import torch

from groupwise.config import ConfigError
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.learner.protocol import Sizes, StepNumbers
from groupwise_tinker.client import Adapter, Sequenced, Service, TinkerError, filled_rows
from groupwise_tinker.saved import SavedState

# The rules of a server, measured on an adapter that is thrown away: how the losses of many tokens are reduced to one,
# and whether gradients are clipped.
#
# AdamW with `eps >> |g|` is SGD of the rate `learning_rate / eps`, so that the change of a log-prob after one step is
# the inner product of two gradients. Four numbers tell the rules apart; a server of another rule is refused.

Reduction = Literal["sum", "mean_sequence", "mean_batch"]


@final
@dataclass(frozen=True)
class ServerRules:
    """The measured rules of a server.

    Args:
        reduction: how the losses of many tokens are reduced to one.
        clips: whether a step clips the gradient to the norm that the client names.

    Example:
        >>> ServerRules("sum", clips=False).reduction
        'sum'
    """

    reduction: Reduction
    clips: bool


_FEWER_TOKENS_AND_MORE_DATA: dict[Reduction, tuple[float, float]] = {
    "sum": (1.0, 1.0),
    "mean_sequence": (2.0, 1 / 2),
    "mean_batch": (2.0, 2 / 3),
}
_TOLERANCE = 0.1
_EPS = 1e6
_RESPONSE_NATS = 0.03
_TINY_NORM = 1e-12
"""A norm far below that of any gradient: clipping to it turns a step into no change."""


def factors(reduction: Reduction, counts: Sequence[int]) -> list[float]:
    """Returns a factor for each datum's advantages, with which the server's gradient is a sum.

    Args:
        reduction: the server's rule.
        counts: numbers of decisions of all data until the optimiser's step.

    Example:
        >>> factors("mean_sequence", [2, 3]), factors("mean_batch", [2, 3])
        ([4.0, 6.0], [5.0, 5.0])
    """
    if reduction == "mean_sequence":
        return [float(count * len(counts)) for count in counts]
    return [float(sum(counts)) if reduction == "mean_batch" else 1.0] * len(counts)


def measure_rules(service: Service) -> ServerRules:
    """Measures the server's rules and refuses a server whose rule is unknown or whose gradient is not linear.

    Raises:
        ConfigError: the gradient of the server follows none of the rules.
    """
    adapter = service.adapter(seed=0)
    try:
        return _measure(service, adapter)
    finally:
        adapter.unload()


def _measure(service: Service, adapter: Adapter) -> ServerRules:
    member = Sequenced([3, 4, 5], [6, 7, 8, 9, 10, 11, 12, 13], [True] * 8)
    half = Sequenced(member.prompt, member.tokens, [True] * 4 + [False] * 4)
    filler = Sequenced([5, 4], [9, 8, 7, 6], [True] * 4)
    first_half = [1.0] * 4 + [0.0] * 4
    start_path = adapter.save()
    (start,) = adapter.log_probs([member])
    (filler_start,) = adapter.log_probs([filler])
    old = {member.key: start, filler.key: filler_start}

    def response(
        requests: Sequence[Sequence[Sequenced]], rate: float, advantage: float = 1.0, max_grad_norm: float | None = None
    ) -> float:
        for members in requests:
            advantages = [
                [advantage * value for value in first_half] if row.key == member.key else [0.0] * len(row.tokens)
                for row in members
            ]
            adapter.accumulate(members, [old[row.key] for row in members], advantages)
        adapter.step(StepNumbers(rate * _EPS, beta1=0.0, beta2=0.0, eps=_EPS, max_grad_norm=max_grad_norm))
        (end,) = adapter.log_probs([member])
        adapter.load(start_path, moments=False)
        return sum(end[:4]) - sum(start[:4])

    rate, change = 1e-4, 0.0
    for _ in range(6):
        change = response([[member]], rate)
        if _RESPONSE_NATS / 3 < change < _RESPONSE_NATS * 3:
            break
        rate *= min(max(_RESPONSE_NATS / change, 1e-3), 1e3) if change > 0 else 1e2
    else:
        raise ConfigError(_refusal(service, f"a step along the gradient changed a log-prob by {change:.3g} nats"))
    ratios = {
        "opposite": response([[member]], rate, -1.0) / change,
        "tripled": response([[member]], rate / 3, 3.0) / change,
        "fewer": response([[half]], rate / 2) / change * 2,
        "more": response([[member, filler]], rate) / change,
        "split": response([[member], [filler]], rate) / change,
    }
    linear = abs(ratios["opposite"] + 1) < _TOLERANCE and abs(ratios["tripled"] - 1) < _TOLERANCE
    if linear and abs(ratios["split"] - ratios["more"]) < _TOLERANCE / 2:
        for reduction, (fewer, more) in _FEWER_TOKENS_AND_MORE_DATA.items():
            if abs(ratios["fewer"] - fewer) < _TOLERANCE and abs(ratios["more"] - more) < _TOLERANCE / 2:
                clipped_change = response([[member]], rate, max_grad_norm=_TINY_NORM)
                return ServerRules(reduction, clips=abs(clipped_change / change) < _TOLERANCE)
    measured = ", ".join(f"{name} {value:.3f}" for name, value in ratios.items())
    raise ConfigError(_refusal(service, f"measured {measured}"))


def _refusal(service: Service, evidence: str) -> str:
    return (
        f"model.address = {service.config.address!r}: the gradient of this server's importance_sampling is neither a"
        f" sum, nor a mean of sequences, nor a mean of the batch ({evidence}); use a server of one of these rules"
    )


_GRAD_NORM_SUFFIX = "grad_norm"


@final
class TinkerLearner:
    """The owner of one adapter on a server; see `groupwise.learner.protocol.Learner`.

    Gradients are queued as cotangents and sent with the step, because what the server divides by counts all data until
    its step.

    Args:
        service: the connection.
        seed: the seed of the adapter's initial weights.
        path: the path of a state on the server, with which the adapter begins; unset begins as the base model.
    """

    differentiates: bool = False

    def __init__(self, service: Service, seed: int, path: str | None = None) -> None:
        self.service, self._seed = service, seed
        weakref.finalize(self, service.close)  # also at the interpreter's end
        self.live = self.open_adapter()
        self.active = self.live
        self._queue: list[tuple[Sequenced, list[float], list[float]]] = []
        self._scores: dict[tuple[Any, Any], list[float]] = {}
        if path is not None:
            self._load(self.live, path, moments=False)

    @cached_property
    def rules(self) -> ServerRules:
        """The server's rules, measured when they are first read: a run reads them before its first step, and one that
        only samples never does.
        """
        return measure_rules(self.service)

    @property
    def offers(self) -> frozenset[str]:
        """Copies; also clipping, which the server is asked for. Reading this measures the server's rules, so that a
        server that follows none of them is refused before a run begins.
        """
        assert self.rules
        return frozenset({"copies", "clipping"})

    def open_adapter(self) -> Adapter:
        """Makes an adapter that `close` unloads."""
        return self.service.adapter(self._seed)

    def log_probs(self, members: Sequence[Sequenced]) -> list[list[float]]:
        """Returns nats for every token of each completion, under the live weights or, within a reference, under its
        own.
        """
        values = self.active.log_probs(members)
        if self.active is self.live:
            self._scores |= {member.key: row for member, row in zip(members, values, strict=True)}
        return values

    def queue(self, members: Sequence[Sequenced], cotangents: Sequence[Sequence[float]]) -> list[list[float]]:
        """Queues the gradient of `sum(cotangent * log_prob)` for the next step and returns the live log-probs."""
        unscored = [member for member in members if member.key not in self._scores]
        if unscored:
            self.log_probs(unscored)
        values = [self._scores[member.key] for member in members]
        for member, row, cotangent in zip(members, values, cotangents, strict=True):
            if member.num_decisions:
                self._queue.append((member, row, [-value for value in cotangent]))
        return values

    def sizes(self) -> Sizes:
        """Returns one trained weight: the API does not tell how many an adapter has."""
        return Sizes(trained=1, total=1)

    def train(self) -> None:
        """Does nothing: the server's passes draw no dropout."""

    def eval(self) -> None:
        """Does nothing, as `train`."""

    def zero_gradients(self) -> None:
        """Forgets the queue; nothing of it has been sent."""
        self._queue.clear()

    def reduce_gradients(self, world: Any) -> None:
        """Does nothing: one process is offered."""

    def step(self, numbers: StepNumbers) -> float:
        """Sends the queued gradient and takes a step of the server's AdamW.

        Returns:
            the gradient's norm where the server reports it, else the norm of the cotangents. 0, and no step, where
            every cotangent is 0; not finite, and no step, where one is not finite.
        """
        norm = math.sqrt(sum(value * value for _, _, row in self._queue for value in row))
        if not self._queue or norm == 0.0 or not math.isfinite(norm):
            self._queue.clear()
            return norm
        rows = filled_rows([member for member, _, _ in self._queue], self.service.config.fewest_rows)
        scales = factors(self.rules.reduction, [row.num_decisions for row in rows])
        advantages = [[scale * value for value in row] for (_, _, row), scale in zip(self._queue, scales, strict=False)]
        log_probs = [row for _, row, _ in self._queue]
        num_fillers = len(rows) - len(self._queue)
        log_probs += [log_probs[-1]] * num_fillers
        advantages += [[0.0] * len(advantages[-1])] * num_fillers
        self.live.accumulate(rows, log_probs, advantages)
        metrics = self.live.step(numbers)
        self._queue.clear()
        self._scores.clear()
        reported = [float(value) for name, value in metrics.items() if name.endswith(_GRAD_NORM_SUFFIX)]
        return reported[0] if reported else norm

    def use_optimiser(self, source: OptimiserSource | None) -> None:
        """Raises: the server steps AdamW."""
        raise NotImplementedError("a Tinker server steps its own optimiser; write optimiser.kind = 'adamw'")

    def shard(self, device: Any) -> None:
        """Raises: the server places its weights."""
        raise NotImplementedError("a Tinker server places its own weights; write train.sharding = 'none'")

    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> AbstractContextManager[None]:
        """Does nothing: the server samples and saves by itself."""
        return nullcontext()

    def forget_moments(self) -> None:
        """Raises: the API has no such call."""
        raise NotImplementedError("a Tinker server does not forget moments; write optimiser.moments = 'kept'")

    def copy(self, *, adapter_off: bool = False) -> TinkerCopy:
        """Returns a second adapter with the weights as they are now."""
        assert not adapter_off, "not offered"
        return TinkerCopy(self, self.live.save())

    def record(self) -> dict[str, Any]:
        """Saves weights and moments on the server and returns their path there."""
        return {"path": self.live.save()}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Loads the state that `record` saved; the server keeps it.

        Raises:
            ValueError: the server has that state no longer.
        """
        self._load(self.live, str(record["path"]), moments=True)

    def save(self, folder: Path) -> None:
        """Saves the state on the server, and its weights in the form of peft, and writes where they are there to
        `tinker.json`.
        """
        config, adapter = self.service.config, self.active
        saved = SavedState(
            address=config.address,
            base_model=config.base_model,
            rank=config.rank,
            state=adapter.save(),
            weights=adapter.save_for_sampling(),
        )
        saved.write(folder)

    def load(self, folder: Path) -> None:
        """Loads the weights that `save` names; the moments begin anew.

        Raises:
            ValueError: the folder names no state, or one that the server has no longer.
        """
        self._load(self.live, SavedState.read(folder).state, moments=False)

    def _load(self, adapter: Adapter, path: str, *, moments: bool) -> None:
        try:
            adapter.load(path, moments=moments)
        except TinkerError as error:
            raise ConfigError(
                f"the state {path} cannot be loaded: {error}; the server that saved it has to keep it, with its"
                " checkpoint folder and its database"
            ) from error
        self._scores.clear()

    def fingerprint(self) -> str:
        """Returns a hash of log-probs of a fixed text, because the API shows no weights."""
        (values,) = self.live.log_probs([Sequenced([3, 4, 5], [6, 7, 8, 9], [True] * 4)])
        return hashlib.blake2b(repr((self.service.config.base_model, values)).encode(), digest_size=16).hexdigest()

    def checkpoint_activations(self, active: bool) -> None:
        """Does nothing: the server decides."""
        assert not active, "not offered"

    def rehearsal(self) -> AbstractContextManager[int]:
        """Raises: the passes run on the server, whose memory cannot be measured here."""
        raise NotImplementedError("a Tinker server does not rehearse; write train.micro_batch_members = a number")

    def close(self) -> None:
        """Unloads every adapter and ends the session; a second call does nothing."""
        self.service.close()


@final
class TinkerCopy:
    """A second adapter, never trained: the reference."""

    holds_weights = True

    def __init__(self, learner: TinkerLearner, path: str) -> None:
        self._learner, self._path = learner, path
        self._adapter = learner.open_adapter()
        weakref.finalize(self, self._adapter.unload)  # a later stage may have another reference
        self._adapter.load(path, moments=False)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes the policy sample and score with this adapter within the block."""
        before, self._learner.active = self._learner.active, self._adapter
        try:
            with torch.no_grad():
                yield
        finally:
            self._learner.active = before

    def mix(self, alpha: float) -> None:
        """Takes the live weights at `alpha = 1` and raises at others: mixing is not offered."""
        if alpha != 1:
            raise NotImplementedError("a Tinker server does not mix weights; write reference.kind = 'frozen'")
        self._path = self._learner.live.save()
        self._adapter.load(self._path, moments=False)

    def distance(self) -> float:
        """Returns nan: the API shows no weights."""
        return math.nan

    def pull(self, coefficient: float) -> float:
        """Raises: the API shows no weights."""
        raise NotImplementedError("a Tinker server does not pull weights; write train.l2_to_reference = 0")

    def record(self) -> dict[str, Any]:
        """Returns the path of the copy on the server."""
        return {"path": self._path}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Loads the weights that `record` names."""
        self._path = str(record["path"])
        self._adapter.load(self._path, moments=False)
