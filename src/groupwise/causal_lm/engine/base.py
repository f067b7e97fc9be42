"""What an engine is: something that samples groups for whoever trains, asked in one form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import Completions, Continue, Progress


@final
@dataclass(frozen=True)
class Asked:
    """One batch of groups to sample; fields as the arguments of `groupwise.causal_lm.sampler.sample`."""

    prompts: Sequence[Sequence[int]]
    group_size: int
    settings: SamplingConfig
    seeds: Sequence[int]
    requires: frozenset[str]
    continue_with: Continue | None
    progress: Progress | None


class Engine(ABC):
    """Something that samples groups. `live` says whether it samples from the weights that are trained, as they are at
    the moment.
    """

    live: ClassVar[bool] = True

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        settings: SamplingConfig,
        seeds: Sequence[int],
        *,
        requires: Iterable[str] = ("log_prob",),
        continue_with: Continue | None = None,
        progress: Progress | None = None,
    ) -> Completions:
        """Arguments, result and errors as of `groupwise.causal_lm.sampler.sample`."""
        return self.answer(Asked(prompts, group_size, settings, seeds, frozenset(requires), continue_with, progress))

    @abstractmethod
    def answer(self, asked: Asked) -> Completions:
        """What was asked for."""
