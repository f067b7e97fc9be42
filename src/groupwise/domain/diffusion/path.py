"""From noise to images: all members together, one transition after the other, remembering what is scored
again later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from groupwise.domain.diffusion.config import Reduce
from groupwise.domain.diffusion.denoiser import Condition, Denoiser
from groupwise.domain.diffusion.noise_schedule import Schedule
from groupwise.domain.diffusion.sampler import ODE, Sampler, Step
from groupwise.domain.diffusion.transition import Transition, transition


@final
@dataclass(frozen=True)
class Drawn:
    """`B` members and their `W` decisions.

    Args:
        latents: `[B, ...]`, the end of the path.
        visited: `[B, W + 1, ...]`, the latents before each decision and after the last, in the dtype they are scored
            in.
        mean: `[B, W, ...]`, the decisions' means, where they were asked for.
        fields: name -> `[B, W]` (or `[B, W D]`): log-probs and what else of `Scored` was asked for.
        step_size: `[W]`, the time each decision takes.
    """

    latents: Tensor
    visited: Tensor
    mean: Tensor | None
    fields: dict[str, Tensor]
    step_size: Tensor


def draw(
    denoiser: Denoiser,
    schedule: Schedule,
    sampler: Sampler,
    latents: Tensor,
    noise: Tensor,
    condition: Condition,
    *,
    guidance: float,
    first: int,
    reduce: Reduce,
    requires: frozenset[str],
    at_once: int | None,
    keep: list[Transition] | None = None,
) -> Drawn:
    """Draws a path for each member.

    Args:
        denoiser, schedule, guidance: the model, its noise levels, and how strongly a prompt is followed.
        sampler: of the decisions; the other transitions are deterministic.
        latents: `[B, ...]`, the initial noise.
        noise: `[B, W, ...]`, of the `W` decisions `first .. first + W - 1`.
        condition: `B` rows.
        first: the first decision's transition.
        reduce: unit of the log-probs.
        requires: fields of `Scored`; means are kept where a field reads them.
        at_once: transitions in one forward pass.
        keep: receives the decisions' transitions with their graph; unset computes without gradient.
    """
    num = noise.shape[1]
    visited = latents.new_empty(len(latents), num + 1, *latents.shape[1:])
    means = latents.new_empty(noise.shape) if requires & {"mean_shift", "exact_divergence"} else None
    found: dict[str, list[Tensor]] = {}
    for index in range(schedule.num_steps):
        place = index - first
        decided = 0 <= place < num
        with torch.set_grad_enabled(decided and keep is not None):
            now = step_at(
                denoiser, schedule, sampler if decided else ODE(), latents, condition, index, guidance, at_once
            )
        if not decided:
            latents = now.mean
            continue
        if keep is not None:
            keep.append(now)
            now = replace(now, mean=now.mean.detach())
        visited[:, place] = latents
        latents = now.draw(noise[:, place])
        visited[:, place + 1] = latents
        for name, value in fields(now, latents, reduce, requires).items():
            found.setdefault(name, []).append(value)
        if means is not None:
            means[:, place] = now.mean
    joined = {
        name: torch.cat([value.reshape(len(latents), -1) for value in values], dim=1) for name, values in found.items()
    }
    sizes = (schedule.time[first : first + num] - schedule.time[first + 1 : first + num + 1]).to(latents)
    return Drawn(latents, visited, means, joined, sizes)


def step_at(
    denoiser: Denoiser,
    schedule: Schedule,
    sampler: Sampler,
    latents: Tensor,
    condition: Condition,
    index: int,
    guidance: float,
    at_once: int | None,
) -> Transition:
    """One transition of all members.

    Args:
        denoiser, schedule, sampler, guidance: as in `draw`.
        latents: `[B, ...]`, before it.
        condition: `B` rows.
        index: which transition.
        at_once: members in one forward pass.

    Returns:
        `B` Gaussians, with gradient where it is on.
    """
    time = schedule.timestep[index].to(latents).expand(len(latents))
    if at_once is None or len(latents) <= at_once:
        prediction = denoiser.predict(latents, time, condition, guidance)
    else:
        members = torch.arange(len(latents), device=latents.device)
        prediction = in_slices(
            lambda rows: denoiser.predict(latents[rows], time[rows], condition.select(rows), guidance), members, at_once
        )
    # One noise level serves all members.
    step = Step.of(schedule, torch.full((1,), index, device=schedule.time.device))
    now = transition(sampler, denoiser.parametrisation, latents, prediction, step)
    return replace(now, std=now.std.expand(len(latents)), step_size=now.step_size.expand(len(latents)))


def in_slices(compute: Callable[[Tensor], Tensor], rows: Tensor, at_once: int | None) -> Tensor:
    """`compute` on slices of `rows`, joined.

    Args:
        compute: rows `[N]` -> `[N, ...]`, each row by itself.
        rows: what to compute.
        at_once: the largest slice; None takes all.

    Example:
        >>> in_slices(lambda rows: 2 * rows, torch.arange(5), 2).tolist()
        [0, 2, 4, 6, 8]
    """
    if at_once is None or len(rows) <= at_once:
        return compute(rows)
    return torch.cat([compute(part) for part in rows.split(at_once)])


def fields(now: Transition, after: Tensor, reduce: Reduce, requires: frozenset[str]) -> dict[str, Tensor]:
    """The fields of `Scored` that a transition gives by itself: `[N]`, or `[N, D]` for `per_element`.

    Args:
        now: `N` Gaussians.
        after: `[N, ...]`, the latents that were drawn from them.
        reduce: unit of the log-probs.
        requires: fields asked for; `log_prob` is always there.
    """
    found = {"log_prob": now.log_prob(after, reduce)}
    if "entropy" in requires:
        found["entropy"] = now.entropy(reduce)
    if "score_norm" in requires:
        found["score_norm"] = now.score_norm(after, reduce)
    return found
