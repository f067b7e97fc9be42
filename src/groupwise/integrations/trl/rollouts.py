"""TRL's samples and rewards as our records: whole groups of all processes, from which every process keeps its
members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from groupwise.objective.batch import Batch
from groupwise.records import Rollouts


@final
@dataclass(frozen=True)
class Sampled:
    """The members of one generation that live on this process.

    Args:
        batch: advantages and admission, from whole groups.
        fresh: TRL kept no old log-probs, because every update on this generation is on-policy.
    """

    batch: Batch
    fresh: bool


def decision_mask(output: Mapping[str, Any]) -> Tensor:
    """Returns `[B, T]` bool: the tokens of the completion that the model chose and that TRL trains on (not cut off, not
    a tool's).
    """
    mask = output["completion_mask"] if "tool_mask" not in output else output["completion_mask"] * output["tool_mask"]
    return mask.bool()


def behaviour_log_prob(output: Mapping[str, Any], old: Tensor) -> Tensor:
    """Returns the log-probs that the sampler recorded; where it recorded none (NaN), those of the old policy."""
    sampler_log_prob = output["sampling_per_token_logps"].to(old.dtype)
    return torch.where(sampler_log_prob.isnan(), old, sampler_log_prob.clamp(max=0.0))


def gathered_rollouts(
    output: Mapping[str, Any],
    old: Tensor | None,
    behaviour: Tensor | None,
    rewards: Tensor,
    names: Sequence[str],
    weights: Sequence[float],
    group_size: int,
    gather: Callable[[Tensor], Tensor],
) -> Rollouts:
    """Gathers the rollouts of all processes, in TRL's order: a group may have members on several processes.

    Args:
        output: the return value of TRL's generation on this process.
        old: `[B, T]` log-probs in nats, or `None` where the live ones serve.
        behaviour: `[B, T]` log-probs of the sampler, in nats.
        rewards: `[B of all processes, rewards]`, NaN where missing.
        names, weights: of the rewards, in the order of their columns.
        group_size: members of a prompt.
        gather: stacks the `[B, T]` of all processes, padded to the widest.
    """
    mask = decision_mask(output)
    reference = output.get("ref_per_token_logps")
    columns = rewards.double().T.tolist()
    unique_names = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names)]
    return Rollouts(
        group=torch.arange(len(rewards), device=mask.device) // group_size,
        mask=gather(mask.to(torch.uint8)).bool(),
        # On-policy, the first forward of each micro-batch gives the old log-probs; nothing reads these zeros.
        old_log_prob=gather(torch.zeros(mask.shape, device=mask.device) if old is None else old),
        rewards={
            name: [None if value != value else value for value in column]
            for name, column in zip(unique_names, columns, strict=True)
        },
        reward_weights=dict(zip(unique_names, weights, strict=True)),
        behaviour_log_prob=None if behaviour is None else gather(behaviour),
        reference_log_prob=None if reference is None else gather(reference),
    )


def local_members(batch: Batch, start: int, shape: torch.Size) -> Batch:
    """Selects the members of this process, at the width they were sampled with."""
    rows = torch.arange(start, start + shape[0], device=batch.acted.mask.device)
    return replace(batch.select(rows), acted=batch.acted.select(rows, slice(shape[1])))
