"""Draws paths from noise to images: some members together, one transition after the other, with a record of what is
scored again later.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import UPDATE, PassSizes, free_memory, joined_rows
from groupwise.processes import is_out_of_memory
from groupwise.streams import Streams
from groupwise_images.diffusion.config import Reduce
from groupwise_images.diffusion.denoiser import Condition, Denoiser
from groupwise_images.diffusion.sampler import ODE, Sampler, Step
from groupwise_images.diffusion.transition import Schedule, Transition, transition

_FIELD = "fields."


@final
@dataclass(frozen=True)
class Drawn:
    """The paths of `B` members with their `W` decisions.

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

    @staticmethod
    def joined(parts: Iterable[Drawn], num_members: int) -> Drawn:
        """Joins the paths of slices of members; see `joined_rows`.

        Args:
            parts: the slices, which may be drawn one by one.
            num_members: the number of members of all slices together.
        """
        step_sizes: list[Tensor] = []

        def rows_of(part: Drawn) -> dict[str, Tensor]:
            step_sizes[:] = [part.step_size]
            means = {} if part.mean is None else {"mean": part.mean}
            return {"latents": part.latents, "visited": part.visited, **means, **_prefixed(part.fields)}

        whole = joined_rows(map(rows_of, parts), num_members)
        fields = {name.removeprefix(_FIELD): value for name, value in whole.items() if name.startswith(_FIELD)}
        return Drawn(whole["latents"], whole["visited"], whole.get("mean"), fields, step_sizes[0])


def noise_of(denoiser: Denoiser, streams: Streams, num: int, name: str, *key: int | str) -> Tensor:
    """Draws `[num, *latent_shape]` normal numbers under a key, in the latents' dtype.

    Args:
        streams, name, key: the draw's generator.
    """
    generator = streams.generator(name, *key)
    return torch.randn(num, *denoiser.latent_shape, generator=generator, dtype=torch.float32).to(denoiser.latent_dtype)


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
    keep: list[Transition] | None = None,
) -> Drawn:
    """Draws a path for each member.

    Args:
        denoiser, schedule, guidance: the model, its noise levels, and how strongly a prompt is followed.
        sampler: the sampler of the decisions; the other transitions are deterministic.
        latents: `[B, ...]`, the initial noise.
        noise: `[B, W, ...]`, of the `W` decisions `first .. first + W - 1`.
        condition: `B` rows.
        first: the first decision's transition.
        reduce: unit of the log-probs.
        requires: fields of `Scored`; means are kept where a field reads them.
        keep: receives the decisions' transitions with their graph; unset computes without gradient.

    Raises:
        ConfigError: a prediction is not finite.
    """
    num = noise.shape[1]
    visited = latents.new_empty(len(latents), num + 1, *latents.shape[1:])
    means = latents.new_empty(noise.shape) if requires & {"mean_shift", "old_divergence", "exact_divergence"} else None
    field_parts: dict[str, list[Tensor]] = {}
    for index in range(schedule.num_steps):
        decision = index - first
        is_decision = 0 <= decision < num
        with torch.set_grad_enabled(is_decision and keep is not None):
            gaussians = step_at(
                denoiser, schedule, sampler if is_decision else ODE(), latents, condition, index, guidance
            )
        if not is_decision:
            latents = gaussians.mean
            continue
        if keep is not None:
            keep.append(gaussians)
            gaussians = replace(gaussians, mean=gaussians.mean.detach())
        visited[:, decision] = latents
        latents = gaussians.draw(noise[:, decision])
        visited[:, decision + 1] = latents
        for name, value in fields(gaussians, latents, reduce, requires).items():
            field_parts.setdefault(name, []).append(value)
        if means is not None:
            means[:, decision] = gaussians.mean
    if not latents.isfinite().all():
        raise ConfigError(
            "model: it predicts NaN or infinity; its weights in domain.model.path are damaged, overflow in half"
            ' precision (domain.model.dtype = "float32"), or its training has diverged (lower optimiser.learning_rate)'
        )
    joined = {
        name: torch.cat([value.reshape(len(latents), -1) for value in values], dim=1)
        for name, values in field_parts.items()
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
) -> Transition:
    """Computes one transition of all members, in one pass.

    Args:
        denoiser, schedule, sampler, guidance: as in `draw`.
        latents: `[B, ...]`, before it.
        condition: `B` rows.

    Returns:
        `B` Gaussians, with gradient where it is on.
    """
    time = schedule.timestep[index].to(latents).expand(len(latents))
    prediction = denoiser.predict(latents, time, condition, guidance)
    # One noise level serves all members.
    step = Step.of(schedule, torch.full((1,), index, device=schedule.time.device))
    gaussians = transition(sampler, denoiser.parametrisation, latents, prediction, step)
    std, size = (value.expand(len(latents)) for value in (gaussians.std, gaussians.step_size))
    return replace(gaussians, std=std, step_size=size)


def fields(gaussians: Transition, after: Tensor, reduce: Reduce, requires: frozenset[str]) -> dict[str, Tensor]:
    """Computes the fields of `Scored` that a transition gives by itself: `[N]`, or `[N, D]` for `per_element`.

    Args:
        gaussians: `N` of them.
        after: `[N, ...]`, the latents that were drawn from them.
        reduce: unit of the log-probs.
        requires: fields asked for; `log_prob` is always returned.
    """
    values = {"log_prob": gaussians.log_prob(after, reduce)}
    if "entropy" in requires:
        values["entropy"] = gaussians.entropy(reduce)
    if "score_norm" in requires:
        values["score_norm"] = gaussians.score_norm(after, reduce)
    return values


def _prefixed(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{_FIELD}{name}": value for name, value in values.items()}


# The sampler's graph: the first update after sampling differentiates what sampling computed, and does not run the
# model a second time.
#
# The graph takes as much memory as one backward pass over all transitions at once. So it is stored only where that
# many fit (`PassSizes`), without gradient checkpointing, for an update of most of the batch.

_calls = itertools.count()


@final
@dataclass(frozen=True)
class SamplerGraph:
    """Means of all decisions of one call of the sampler, with their graph.

    Args:
        mean: `[B, W, ...]`, with gradient.
        std, step_size: `[W]`.
        versions: how often each weight had been changed in place when the means were computed.
        call: the number of this call of the sampler, which its samples carry too.
    """

    mean: Tensor
    std: Tensor
    step_size: Tensor
    versions: tuple[int, ...]
    call: int = field(default_factory=lambda: next(_calls))

    @staticmethod
    def of(transitions: list[Transition], module: nn.Module) -> SamplerGraph:
        """Collects the transitions that the sampler went through, under the weights as they are now."""
        # All members of a transition have one standard deviation and one step size.
        return SamplerGraph(
            torch.stack([gaussians.mean for gaussians in transitions], 1),
            torch.stack([gaussians.std[0] for gaussians in transitions]),
            torch.stack([gaussians.step_size[0] for gaussians in transitions]),
            versions(module),
        )

    def serves(self, module: nn.Module, call: Tensor) -> bool:
        """Tests that the weights are unchanged, and that the members to update, whose calls are `call`, are most of
        this batch and of no other batch.

        A backward pass through the graph costs two forward passes for every member of the batch; without it, three for
        every member of the update.
        """
        return (
            3 * len(call) > 2 * len(self.mean) and bool((call == self.call).all()) and versions(module) == self.versions
        )

    def at(self, row: Tensor, decision: Tensor) -> Transition:
        """Returns the Gaussians of pairs: members by their place in the sampler's batch, and decisions."""
        return Transition(self.mean[row, decision], self.std[decision], self.step_size[decision])


def draw_with_graph(
    draw: Callable[[Tensor, list[Transition]], Drawn], num_members: int, module: nn.Module, passes: PassSizes
) -> tuple[Drawn | None, SamplerGraph | None]:
    """Draws all members in one pass and returns their paths with the graph. If memory runs out, returns neither, and
    later passes take half.

    Args:
        draw: draws the members of some rows, and adds their transitions to the list.
        passes: which decided that so many transitions fit.
    """
    transitions: list[Transition] = []
    try:
        drawn = draw(torch.arange(num_members, device=next(module.parameters()).device), transitions)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        passes.halve(UPDATE, passes.rows(UPDATE))
    else:
        return drawn, SamplerGraph.of(transitions, module)
    transitions.clear()
    free_memory()
    return None, None


def should_keep_graph(module: nn.Module, num_transitions: int, passes: PassSizes) -> bool:
    """Tests that a graph of that many transitions should be stored: gradients are on, they fit into one pass, and
    memory is not saved elsewhere.
    """
    if not torch.is_grad_enabled() or UPDATE in passes.stated or num_transitions > passes.rows(UPDATE):
        return False
    return not any(getattr(part, "gradient_checkpointing", False) for part in module.modules())


def versions(module: nn.Module) -> tuple[int, ...]:
    """Counts how often each weight was changed in place."""
    return tuple(parameter._version for parameter in module.parameters() if parameter.requires_grad)
