"""The interface of an engine, which samples groups for training and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from torch import Tensor

from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import Completions, Continue, Progress


@final
@dataclass(frozen=True)
class GroupBatch:
    """One batch of groups to sample; fields as the arguments of `Engine.sample`."""

    prompts: Sequence[Sequence[int]]
    group_size: int
    settings: SamplingConfig
    seeds: Sequence[int]
    requires: frozenset[str]
    continue_with: Continue | None
    begin_again: Callable[[], None] | None
    progress: Progress | None


class Gathers(Protocol):
    """The processes of a run, as far as an engine needs them."""

    def gather(self, value: Any) -> list[Any]:
        """Returns one plain value a process, on all of them."""
        ...


class Engine(ABC):
    """A sampler of groups. `live` says whether it samples from the weights that are trained, as they are now,
    `sends_weights` whether this process, and not another one, sends them to the servers that sample.
    """

    live: bool = True
    sends_weights: bool = True

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        settings: SamplingConfig,
        seeds: Sequence[int],
        *,
        requires: Iterable[str] = ("log_prob",),
        continue_with: Continue | None = None,
        begin_again: Callable[[], None] | None = None,
        progress: Progress | None = None,
    ) -> Completions:
        """Samples groups; other arguments, result and errors as of `groupwise.causal_lm.sampler.sample`.

        Args:
            begin_again: called before all groups are sampled from their beginning once more; it undoes what
                `continue_with` remembers of them.
        """
        return self.answer(
            GroupBatch(prompts, group_size, settings, seeds, frozenset(requires), continue_with, begin_again, progress)
        )

    @abstractmethod
    def answer(self, batch: GroupBatch) -> Completions:
        """Samples the groups of a batch."""

    def expect(self, num_tokens: int) -> None:  # noqa: B027
        """Notes that texts will be sampled of so many tokens of prompt and completion; does nothing by default."""

    def send_weights(  # noqa: B027
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, peers: Gathers
    ) -> None:
        """Sends the weights of now to servers that several processes share; does nothing by default. Every process
        calls it.

        Args:
            prompts: those that are trained on; a server proves its weights with some of them.
            max_new_tokens: the longest completion of the run.
            peers: the processes.
        """

    @property
    def leaves_scores(self) -> bool:
        """Whether `sample` returns NaN log-probs, which the caller computes with all processes."""
        return False

    def check_scored(self, expected: Tensor, served: Tensor) -> None:  # noqa: B027
        """Compares log-probs that the caller computed with those that the engine reported; does nothing by default.

        Args:
            expected: `[N]` nats, of the trained weights.
            served: `[N]` nats.
        """

    def close(self) -> None:  # noqa: B027
        """Ends what the engine started; a second call does nothing."""
