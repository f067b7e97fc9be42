"""The laws of a domain: functions of a domain and of one batch of its samples."""

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import why_failed
from groupwise.domain import returned
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Prompt, Samples
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import StepNumbers
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise.testing.slot import BrokenLaws

_SMALL, _LARGE = StepNumbers(learning_rate=1e-3), StepNumbers(learning_rate=1e-1)


@final
@dataclass(frozen=True)
class _Trial:
    """A domain, the prompts of a small batch, and its samples."""

    domain: Domain
    prompts: list[Prompt]
    group_size: int
    tolerance: float
    reopen: Callable[[Path], Domain] | None
    samples: Samples

    def sample(self, prompts: list[Prompt], step: int = 0) -> Samples:
        """Draws one group of every prompt; equal arguments give equal groups."""
        return _draw(self.domain, prompts, self.group_size, step)

    def log_prob(self, rows: Tensor | None = None, domain: Domain | None = None) -> Tensor:
        """Scores the members in `rows` (all unless they are passed), with another domain if one is passed."""
        rows = torch.arange(len(self.samples)) if rows is None else rows
        with torch.no_grad():
            scored = (domain or self.domain).score(self.samples, rows, frozenset({"log_prob"}))
        returned.check_scored(
            f"score of {len(rows)} of {len(self.samples)} members (rows)", scored, self.samples.mask[rows]
        )
        return scored.log_prob

    def differ(self, left: Tensor, right: Tensor, mask: Tensor) -> bool:
        """Returns whether two tensors are further apart than the tolerance at a decision that counts."""
        return bool(((left - right)[mask].abs() > self.tolerance).any())


def check_domain(
    domain: Domain,
    *,
    num_prompts: int = 2,
    group_size: int = 3,
    tolerance: float = 1e-4,
    reopen: Callable[[Path], Domain] | None = None,
) -> None:
    """Tests a domain against every law that training relies on.

    `score` gives the recorded log-probs; a member depends on its key alone; the gradient of `backward` is that of
    `score`; the learner forgets, accumulates, steps and restores; a saved domain opens again with the same scores; the
    domain changes no global state.

    Args:
        domain: an open domain, with its weights.
        num_prompts: number of training prompts that are sampled.
        group_size: number of members a prompt.
        tolerance: nats by which two computations of one log-prob may differ.
        reopen: function that opens a folder which `save` wrote; unset, `domain.load` reads it.

    Raises:
        BrokenLaws: at least one law does not hold; the message lists all of them.

    Example:
        >>> from groupwise import load_experiment
        >>> from groupwise.experiment.runner import open_domain, with_model
        >>> changes = ["domain.data.num_train=4", "domain.data.num_held_out=2", "domain.demonstrations.num=2"]
        >>> experiment = load_experiment("language", changes)
        >>> check_domain(open_domain(experiment), reopen=lambda folder: open_domain(with_model(experiment, folder)))
    """
    generator_states = _generators()
    fingerprint_before = domain.learner.fingerprint()
    try:
        num_prompts = min(num_prompts, domain.num_prompts)
        prompts = returned.checked_prompts(domain.prompts(range(num_prompts)), num_prompts)
        returned.checked_prompts(domain.prompts(range(domain.num_prompts - 1, domain.num_prompts)), 1)
        samples = returned.first_samples(domain, prompts, group_size, streams=Streams(0))
    except returned.Fault as fault:
        raise BrokenLaws([str(fault)]) from fault
    except Exception as error:
        raise BrokenLaws([f"prompts and sample: raised {why_failed(error)}"]) from error
    broken: list[str] = []
    if domain.learner.fingerprint() != fingerprint_before:
        broken.append("sample: it changed the module's weights; draw without changing them")
    if _generators() != generator_states:
        broken.append(
            "sample: it moved a global generator (torch, numpy or random); draw from streams.generator(name, step,"
            " prompt.key, member)"
        )
    trial = _Trial(domain, prompts, group_size, tolerance, reopen, samples)
    for law in (_recorded, _rows, _keys, _gradient, _learner, _rewards, _evaluation, _description, _saved):
        try:
            broken += law(trial)
        except returned.Fault as fault:
            broken.append(str(fault))
        # User code may raise anything; the message names the law that was tested.
        except Exception as error:
            broken.append(f"{law.__name__.strip('_')}: raised {why_failed(error)}")
    if broken:
        raise BrokenLaws(broken)


def _draw(
    domain: Domain,
    prompts: list[Prompt],
    group_size: int,
    step: int,
    requires: frozenset[str] = frozenset({"log_prob"}),
) -> Samples:
    """Samples one group of every prompt without gradient; the seed is always 0."""
    with torch.no_grad():
        return domain.sample(prompts, group_size, streams=Streams(0), step=step, settings={}, requires=requires)


def _generators() -> tuple[Any, ...]:
    """Returns the states of the global generators of torch, numpy and random."""
    name, keys, *rest = np.random.get_state()
    return (torch.get_rng_state().numpy().tobytes(), name, np.asarray(keys).tobytes(), str(rest), random.getstate())


def _recorded(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of the record: at unchanged weights, `score` gives the log-probs that `sample` recorded."""
    returned.check_recorded(trial.domain, trial.samples, trial.tolerance)
    # Some fields compare with a recorded value, so they are requested when sampling too.
    for name in sorted(trial.domain.supplies - {"log_prob", "step_size", "exact_divergence"}):
        requires = frozenset({"log_prob", name})
        carrying = _draw(trial.domain, trial.prompts, trial.group_size, 0, requires)
        with torch.no_grad():
            fields = trial.domain.score(carrying, torch.arange(len(carrying)), requires).tensors()
        if name not in fields:
            yield f"score: supplies names {name!r}, and score does not give it where it is required"


def _rows(trial: _Trial) -> Iterator[str]:
    """Yields a broken law of rows: a member's score depends on its own decisions alone."""
    rows = torch.tensor([len(trial.samples) - 1, 0])
    if trial.differ(trial.log_prob(rows), trial.log_prob()[rows], trial.samples.mask[rows]):
        yield "score: a member's log-probs depend on the other rows that are scored with it"


def _keys(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of keys: a draw depends on the stream, the step, the prompt and the number of the member."""
    samples = trial.samples
    if trial.differ(trial.sample(trial.prompts).old_log_prob, samples.old_log_prob, samples.mask):
        yield (
            "sample: the same streams and step gave other members; draw from streams.generator(name, step, prompt.key,"
            " member)"
        )
        return
    single_group = trial.sample(trial.prompts[-1:])
    last_mask = samples.mask[-trial.group_size :]
    width = min(last_mask.shape[1], single_group.mask.shape[1])
    if trial.differ(
        single_group.old_log_prob[:, :width],
        samples.old_log_prob[-trial.group_size :, :width],
        (last_mask[:, :width] & single_group.mask[:, :width]),
    ):
        yield (
            "sample: a member depends on the prompts that are sampled beside it; key its generator by prompt.key and"
            " its number in the group"
        )
    if (
        trial.group_size > 1
        and _all_same(samples, trial.group_size)
        and _all_same(trial.sample(trial.prompts, step=1), trial.group_size)
    ):
        yield "sample: the members of a group are all the same; key each generator by the member's number too"


def _all_same(samples: Samples, group_size: int) -> bool:
    """Returns whether the members of the first group are all equal in their log-probs. If the policy is uniform, which
    gives one log-prob to all, the other recorded fields are compared.
    """
    log_probs = torch.where(samples.mask, samples.old_log_prob, 0.0)
    compared = [log_probs]
    if len(samples.old_log_prob[samples.mask].unique()) == 1:
        compared += [value for value in samples.payload.values() if isinstance(value, Tensor)]
    return all(bool((rows[:group_size] == rows[:1]).all()) for rows in compared)


def _gradient(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of the gradient: `backward` is autograd through `score`, and some weight has a gradient."""
    domain, rows = trial.domain, torch.arange(len(trial.samples))
    learner = domain.learner
    if not isinstance(learner, LocalLearner):
        # A remote learner exposes no weights, so gradients cannot be compared; its steps are tested instead.
        return
    weights = {name: weight for name, weight in learner.module.named_parameters() if weight.requires_grad}
    cotangent = _cotangent(trial.samples)
    _forget(weights)
    scored = domain.score(trial.samples, rows, frozenset({"log_prob"})).log_prob
    if not scored.requires_grad:
        yield "score: log_prob has no gradient; compute it with the module's live weights, without torch.no_grad"
        return
    torch.where(trial.samples.mask, scored * cotangent, 0.0).sum().backward()
    through_score = {name: None if weight.grad is None else weight.grad.clone() for name, weight in weights.items()}
    _forget(weights)
    _backward(trial)
    scale = max(
        (float(gradient.abs().max()) for gradient in through_score.values() if gradient is not None), default=0.0
    )
    for name, weight in weights.items():
        expected, actual = (
            gradient if gradient is not None else torch.zeros_like(weight)
            for gradient in (through_score[name], weight.grad)
        )
        if float((expected - actual).abs().max()) > 1e-3 * scale + 1e-12:
            yield f"backward: the gradient of {name} is not that of the sum of cotangents and fields that score gives"
            break
    if scale == 0.0:
        yield "score: no weight has a gradient; is the module that score uses self.module?"
    _forget(weights)


def _learner(trial: _Trial) -> Iterator[str]:
    """Yields a sentence for every law that the learner breaks; its weights and moments are afterwards as before."""
    learner, mask = trial.domain.learner, trial.samples.mask
    record_before, log_prob_before = deepcopy(learner.record()), trial.log_prob()
    copy = learner.copy() if "copies" in learner.offers else None
    learner.zero_gradients()
    try:
        yield from _steps(trial)
        learner.restore(record_before)
        _take_step(trial)
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


def _take_step(trial: _Trial) -> None:
    """Takes one optimiser step with a rate of .1, which changes every score."""
    trial.domain.learner.zero_gradients()
    _backward(trial)
    trial.domain.learner.step(_LARGE)


def _steps(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of gradients: they are forgotten, accumulate, and lower the loss."""
    learner = trial.domain.learner
    _backward(trial)
    learner.zero_gradients()
    if learner.step(_SMALL) != 0.0:
        yield "learner.zero_gradients: a gradient is there after it"
        return
    cotangent, log_prob_before = _cotangent(trial.samples), trial.log_prob()
    record_before = deepcopy(learner.record())
    _backward(trial)
    whole_norm = learner.step(_SMALL)
    change = float((cotangent * (trial.log_prob() - log_prob_before))[trial.samples.mask].sum())
    if change > trial.tolerance:
        yield "backward: a step along it raises the sum of cotangents and fields, which it should lower"
    learner.restore(record_before)
    rows = torch.arange(len(trial.samples))
    for half in rows.split((len(rows) + 1) // 2):
        _backward(trial, half)
    halves_norm = learner.step(_SMALL)
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


def _backward(trial: _Trial, rows: Tensor | None = None) -> None:
    rows = torch.arange(len(trial.samples)) if rows is None else rows
    trial.domain.backward(trial.samples, rows, Scored(_cotangent(trial.samples)[rows]))


def _forget(weights: Mapping[str, Tensor]) -> None:
    for weight in weights.values():
        weight.grad = None


def _rewards(trial: _Trial) -> list[str]:
    """Raises a `Fault` unless every member has one value of each reward, a finite number or None."""
    returned.checked_rewards(trial.domain.reward(trial.samples), len(trial.samples))
    return []


def _evaluation(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of evaluation: its metrics are finite, and `metric_names` lists all of them."""
    with torch.no_grad():
        metrics = returned.checked_evaluation(trial.domain.evaluate(streams=Streams(0))).metrics
    unknown = sorted(set(metrics) - set(trial.domain.metric_names))
    if unknown:
        yield f"evaluate: it reports {unknown[0]!r}, which metric_names does not name; train.metric could not choose it"
    if any(not math.isfinite(value) for value in metrics.values()):
        yield "evaluate: a metric is not finite"


def _description(trial: _Trial) -> list[str]:
    """Raises a `Fault` unless every member has a description, which JSON can hold apart from images."""
    samples, rows = trial.samples, torch.arange(len(trial.samples), device=trial.samples.mask.device)
    returned.checked_records(trial.domain.describe(samples, rows), len(rows))
    return []


def _saved(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of saving: a saved domain opens again with the same scores."""
    expected = trial.log_prob()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        trial.domain.save(folder)
        if not any(folder.iterdir()):
            yield "save: it wrote nothing"
            return
        if trial.reopen is not None:
            reopened = trial.reopen(folder)
            if trial.differ(trial.log_prob(domain=reopened), expected, trial.samples.mask):
                yield "save: the domain that is opened on the folder scores otherwise"
            return
        with _changed_weights(trial):
            trial.domain.load(folder)
            if trial.differ(trial.log_prob(), expected, trial.samples.mask):
                yield "load: after it the module scores otherwise than when it was saved"


@contextmanager
def _changed_weights(trial: _Trial) -> Iterator[None]:
    """Changes the weights within the block: those of a module by adding .1, those of a remote learner by a step."""
    learner = trial.domain.learner
    if not isinstance(learner, LocalLearner):
        start = deepcopy(learner.record())
        try:
            _take_step(trial)
            yield
        finally:
            learner.restore(start)
        return
    start = {name: value.clone() for name, value in learner.module.state_dict().items()}
    try:
        with torch.no_grad():
            for weight in learner.module.parameters():
                weight.add_(0.1)
        yield
    finally:
        learner.module.load_state_dict(start)
