"""An objective as the loss of a micro-batch, for trainers that compute the advantages themselves."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.batch import Acted, Batch
from groupwise.objective.divergence import NoDivergence
from groupwise.records import Loss, Scored
from groupwise.schedule import Constant
from groupwise_trainers.foreign import loss_refusals, refuse

MicroBatchLoss = Callable[..., Loss]
AGGREGATIONS = ("token_mean", "member_mean", "member_sum", "fixed_length")
"""Aggregations whose weights follow from one count of the whole optimiser step."""


def micro_batch_loss(
    objective: Objective,
    system: str,
    *,
    passes: Collection[str] = (),
    aggregations: Collection[str] = AGGREGATIONS,
) -> MicroBatchLoss:
    """Returns the loss of an objective as a function of one micro-batch, or refuses the objective.

    `loss(log_prob, old_log_prob, advantages, mask, count=..., behaviour_log_prob=..., reference_log_prob=...)`, all
    `[B, T]` and log-probs in nats. Micro-batches sum to the loss of the step, whose `count` is that of its tokens for
    the aggregation `token_mean` and that of its members for any other; without it the micro-batch is the step.

    Args:
        objective: the loss; its advantages and its filter of groups are the trainer's business.
        system: name of the trainer, for the messages.
        passes: optional log-probs that the trainer has: `behaviour_log_prob`, `reference_log_prob`.
        aggregations: those that the trainer's own reduction leaves exact.

    Raises:
        ValueError: the objective needs something that the trainer does not have, each with what to write.

    Example:
        >>> loss = micro_batch_loss(Objective.preset("gspo"), "my trainer")
        >>> live, old = torch.full((2, 2), -1.0, requires_grad=True), torch.full((2, 2), -1.0)
        >>> advantages = torch.tensor([[1.0, 1.0], [-0.5, -0.5]])
        >>> round(loss(live, old, advantages, torch.ones(2, 2), count=4).total.item(), 4)
        -0.125
    """
    refuse(refusals(objective, system, passes, aggregations))
    loss = step_share(objective)
    needed = sorted(objective.requires_rollouts & set(passes))

    def checked(*tensors: Tensor, **recorded: Tensor | float | None) -> Loss:
        if absent := [name for name in needed if recorded.get(name) is None]:
            raise ValueError(
                f"the objective {objective.name!r} reads {', '.join(absent)}, and {system} passed none; switch them on"
                f" in {system}, or leave out of the objective what reads them"
            )
        return loss(*tensors, **recorded)

    return checked


def step_share(objective: Objective) -> MicroBatchLoss:
    """Returns the loss of `micro_batch_loss` for an objective that was checked elsewhere. It takes one argument more,
    `weight`: `[B, T]`, a factor of every token's term.
    """
    state = objective.init()

    def loss(
        log_prob: Tensor,
        old_log_prob: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        count: float | Tensor | None = None,
        weight: Tensor | None = None,
        behaviour_log_prob: Tensor | None = None,
        reference_log_prob: Tensor | None = None,
    ) -> Loss:
        acted = Acted(
            mask.bool(),
            old_log_prob,
            member=torch.arange(len(log_prob), device=log_prob.device),
            behaviour_log_prob=behaviour_log_prob,
            reference_log_prob=reference_log_prob,
        )
        batch = Batch.of(acted, advantages.double(), state)

        def step_total(local: Tensor) -> Tensor:
            return local if count is None else torch.as_tensor(count, dtype=local.dtype, device=local.device)

        plan = objective.plan(batch, reduce=step_total, detail=False, not_finite="counted")
        if weight is not None:
            plan = replace(plan, weight=plan.weight * weight)
        return objective.loss(Scored(log_prob), plan)

    return loss


def policy_term(objective: Objective) -> Objective:
    """Returns an objective without divergence and entropy bonus, for trainers that add these terms by themselves."""
    return objective.model_copy(update={"divergence": NoDivergence(), "entropy": Constant(value=0.0)})


def refusals(
    objective: Objective, system: str, passes: Collection[str], aggregations: Collection[str] = AGGREGATIONS
) -> Iterator[str]:
    """Yields a sentence for everything that an objective needs and the trainer of `micro_batch_loss` does not have."""
    yield from loss_refusals(objective, system, frozenset({*passes, "reference_log_prob", "reward_history"}))
    if objective.aggregation.kind not in aggregations:
        yield (
            f"aggregation.kind = {objective.aggregation.kind!r} does not come out of {system}'s own reduction; write"
            f" aggregation.kind as one of {', '.join(aggregations)}"
        )
    if objective.entropy.may_be_positive():
        yield f"the objective has an entropy bonus, and {system} gives its loss log-probs only; write entropy = 0"
    divergence = objective.divergence
    if divergence.kind == "none":
        return
    if divergence.place == "reward":
        yield (
            f"divergence.place = 'reward' belongs to the advantages, which {system} computes; write"
            " divergence.place = 'loss', or divergence.kind = 'none'"
        )
    elif divergence.kind == "exact":
        yield (
            f"divergence.kind = 'exact' needs whole distributions, and {system} gives its loss log-probs only; write"
            " divergence.kind = 'k3'"
        )
    elif "reference_log_prob" not in passes and objective.needs_reference:
        yield (
            f"the divergence reads the reference's log-probs, which {system} does not give to its loss; write"
            f" divergence.kind = 'none', and a KL term of {system}'s own where it has one"
        )
