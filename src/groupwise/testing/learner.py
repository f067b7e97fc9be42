"""The laws of a learner, tested through the domain whose weights it owns."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Protocol

import torch
from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.learner.protocol import StepNumbers
from groupwise.records import Scored

SMALL = StepNumbers(learning_rate=1e-3)
LARGE = StepNumbers(learning_rate=1e-1)


class Trial(Protocol):
    """A domain and its samples, which the laws use."""

    @property
    def domain(self) -> Domain: ...

    @property
    def samples(self) -> Samples: ...

    @property
    def tolerance(self) -> float: ...

    def log_prob(self) -> Tensor:
        """Returns the log-probs of the samples under the live policy."""
        ...

    def differ(self, left: Tensor, right: Tensor, mask: Tensor) -> bool:
        """Returns whether two log-probs differ by more than the tolerance where the mask is true."""
        ...


def learner_laws(trial: Trial) -> Iterator[str]:
    """Yields a sentence for every law that the learner breaks; its weights and moments are afterwards as before."""
    learner, mask = trial.domain.learner, trial.samples.mask
    record_before, log_prob_before = deepcopy(learner.record()), trial.log_prob()
    copy = learner.copy() if "copies" in learner.offers else None
    learner.zero_gradients()
    try:
        yield from _gradients(trial)
        learner.restore(record_before)
        take_step(trial)
        moved_log_prob = trial.log_prob()
        if not trial.differ(moved_log_prob, log_prob_before, mask):
            yield "learner.step: a step of rate .1 changed no log-prob; does the domain score with those weights?"
            return
        if copy is not None:
            with copy.active():
                copy_log_prob = trial.log_prob()
            if trial.differ(copy_log_prob, log_prob_before, mask):
                yield "learner.copy: within active() the policy does not score as when the copy was made"
            if trial.differ(trial.log_prob(), moved_log_prob, mask):
                yield "learner.copy: after active() the policy does not score with the live weights"
    finally:
        learner.restore(record_before)
        learner.zero_gradients()
    if trial.differ(trial.log_prob(), log_prob_before, mask):
        yield "learner.restore: after it the policy scores otherwise than when it was recorded"


def take_step(trial: Trial) -> None:
    """Takes one step of rate .1, which changes every score."""
    trial.domain.learner.zero_gradients()
    _backward(trial)
    trial.domain.learner.step(LARGE)


def _gradients(trial: Trial) -> Iterator[str]:
    """Yields broken laws of gradients: they are forgotten, accumulate, and lower the loss."""
    learner = trial.domain.learner
    _backward(trial)
    learner.zero_gradients()
    if learner.step(SMALL) != 0.0:
        yield "learner.zero_gradients: a gradient is there after it"
        return
    cotangent, log_prob_before = _cotangent(trial.samples), trial.log_prob()
    record_before = deepcopy(learner.record())
    _backward(trial)
    whole_norm = learner.step(SMALL)
    change = float((cotangent * (trial.log_prob() - log_prob_before))[trial.samples.mask].sum())
    if change > trial.tolerance:
        yield "backward: a step along it raises the sum of cotangents and fields, which it should lower"
    learner.restore(record_before)
    rows = torch.arange(len(trial.samples))
    for half in rows.split((len(rows) + 1) // 2):
        _backward(trial, half)
    halves_norm = learner.step(SMALL)
    if abs(halves_norm - whole_norm) > 1e-3 * whole_norm:
        yield (
            "backward: two halves of the members add up to another gradient than the whole (norms"
            f" {halves_norm:.4g} and {whole_norm:.4g}); accumulate until zero_gradients"
        )
    learner.restore(record_before)


def _cotangent(samples: Samples) -> Tensor:
    """Returns cotangents of many sizes and either sign."""
    numbers = torch.linspace(-1, 1, samples.mask.numel(), device=samples.mask.device).view_as(samples.mask)
    return torch.where(samples.mask, numbers.to(samples.old_log_prob), 0.0)


def _backward(trial: Trial, rows: Tensor | None = None) -> None:
    rows = torch.arange(len(trial.samples)) if rows is None else rows
    trial.domain.backward(trial.samples, rows, Scored(_cotangent(trial.samples)[rows]))
