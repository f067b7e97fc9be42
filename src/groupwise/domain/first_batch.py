"""The first batch of a domain: what its methods return is checked before anything relies on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from groupwise.config import ConfigError, why_failed
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Prompt, Samples
from groupwise.domain.returned import (
    Fault,
    check_scored,
    checked_prompts,
    checked_records,
    checked_rewards,
    checked_samples,
)
from groupwise.processes import is_out_of_memory
from groupwise.reward import RewardTable
from groupwise.streams import Streams

_NUM_PROMPTS = 2
_GROUP_SIZE = 2
_NATS = {torch.float64: 0.01, torch.float32: 0.01}
_HALF_NATS = 0.1
_RELATIVE = 1e-3


def check_first_batch(domain: Domain, streams: Streams) -> None:
    """Refuses a domain whose methods do not return what training relies on: one small batch is sampled, scored,
    rewarded and described, and nothing of it is trained on.

    `score` may differ by .01 nats from what was recorded (.1 in half precision), or by a thousandth of it. The laws
    that need more than one batch are those of `groupwise.testing.check_domain`.

    Args:
        domain: an open domain, with its weights.
        streams: of the run.

    Raises:
        ConfigError: names the class, the method and what it has to return.
    """
    domain.learner.eval()
    try:
        prompts = first_prompts(domain, _NUM_PROMPTS)
        samples = first_samples(domain, prompts, _GROUP_SIZE, streams=streams)
        if "log_prob" in domain.supplies:
            check_recorded(domain, samples, _NATS.get(samples.old_log_prob.dtype, _HALF_NATS), relative=_RELATIVE)
        first_rewards(domain, samples)
        first_descriptions(domain, samples)
    except Fault as fault:
        raise fault.of(domain) from fault


def first_prompts(domain: Domain, count: int) -> list[Prompt]:
    """Returns the first training prompts, checked.

    Args:
        count: prompts, at most.

    Raises:
        Fault: the method fails, or returns something else.
    """
    return prompts_of(domain, range(min(count, domain.num_prompts)))


def prompts_of(domain: Domain, indices: range) -> list[Prompt]:
    """Returns training prompts by their places, checked.

    Raises:
        Fault: the method fails, or returns something else.
    """
    count = len(indices)
    prompts = _called(f"prompts({list(indices)})", domain.prompts, indices)
    return checked_prompts(prompts, count)


def first_samples(
    domain: Domain,
    prompts: Sequence[Prompt],
    group_size: int,
    *,
    streams: Streams,
    requires: frozenset[str] = frozenset({"log_prob"}),
) -> Samples:
    """Draws one group of every prompt as step 0 without gradient, and returns the members, checked.

    Args:
        prompts: `P` prompts.
        group_size: members of each.
        streams: their generators draw everything.
        requires: names of the fields that are read.

    Raises:
        Fault: the method fails, or returns other members, or records of another shape.
    """
    with torch.no_grad():
        samples = _called(
            "sample", domain.sample, prompts, group_size, streams=streams, step=0, settings={}, requires=requires
        )
    samples = checked_samples(samples, len(prompts), group_size, domain)
    if not samples.mask.any(1).all():
        raise Fault("sample: a member has no decision (its row of mask is all false)")
    return samples


def check_recorded(domain: Domain, samples: Samples, tolerance: float, *, relative: float = 0.0) -> None:
    """Refuses log-probs that are not those which `score` gives under the same weights.

    Args:
        samples: as `first_samples` returned them.
        tolerance: nats by which two computations of one log-prob may differ.
        relative: share of the log-prob's size by which they may differ beside that.

    Raises:
        Fault: `score` fails, or returns other numbers, or another shape.
    """
    rows = torch.arange(len(samples), device=samples.mask.device)
    with torch.no_grad():
        scored = _called("score", domain.score, samples, rows, frozenset({"log_prob"}))
    check_scored("score", scored, samples.mask)

    def gap(log_prob: Tensor) -> Tensor:
        return (log_prob - samples.old_log_prob)[samples.mask].abs()

    bound = (tolerance + relative * samples.old_log_prob.abs())[samples.mask]
    # A number that is not finite is never within the bound.
    if not (gap(scored.log_prob) <= bound).all():
        raise Fault(
            f"score: at unchanged weights it differs from what sample recorded by up to"
            f" {float(gap(scored.log_prob).max()):.3g} nats; score the recorded decisions, not new ones"
        )
    if samples.recorded is not None and not (gap(samples.recorded.log_prob) <= bound).all():
        raise Fault("sample: recorded.log_prob is not old_log_prob")


def first_rewards(domain: Domain, samples: Samples) -> RewardTable:
    """Returns the rewards of every member, checked: a finite number or None a member.

    Args:
        samples: as `first_samples` returned them.

    Raises:
        Fault: the method fails, or returns something else.
    """
    return checked_rewards(_called("reward", domain.reward, samples), len(samples))


def first_descriptions(domain: Domain, samples: Samples) -> list[dict[str, Any]]:
    """Returns the record of every member, checked: JSON apart from images.

    Args:
        samples: as `first_samples` returned them.

    Raises:
        Fault: the method fails, or returns something else.
    """
    rows = torch.arange(len(samples), device=samples.mask.device)
    return checked_records(_called("describe", domain.describe, samples, rows), len(rows))


def check_metric(domain: Domain, metric: str | None, reported: Sequence[str]) -> None:
    """Refuses a domain whose evaluation does not report the metric that a run is judged by.

    Args:
        domain: names the class in the error.
        metric: `train.metric`; None is satisfied by any.
        reported: names of the metrics of an evaluation.

    Raises:
        ConfigError: the metric is not among them; it names those that are.
    """
    if metric is None or metric in reported:
        return
    instead = f" or write train.metric = {json.dumps(reported[0])}" if reported else ""
    raise Fault(
        f"evaluate: it did not report train.metric = {json.dumps(metric)}, though metric_names lists it; it reported"
        f" {', '.join(reported) or 'nothing'}; report {metric} in every evaluation{instead}"
    ).of(domain)


def _called(name: str, method: Any, *arguments: Any, **options: Any) -> Any:
    """Calls a method of an author's, and says which one failed."""
    try:
        return method(*arguments, **options)
    except ConfigError:
        raise
    # An author's code may fail in any way; memory that ran out is no fault of it.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise Fault(f"{name}: raised {why_failed(error)}") from error
