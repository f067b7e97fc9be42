"""Aggregation: mask -> weights `w [B, T]`, with global counts of the update, so that micro-batches and processes sum to
the whole.
"""

from typing import Annotated, Any, ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.config.errors import Positive
from groupwise.objective.decisions import Counts
from groupwise.objective.slot import AggregationSlot, per_decision_problem


@final
class FixedLength(AggregationSlot):
    """`w = 1 / (B L)` with `L = length` and `B` every member that was sampled, dropped groups included: the divisor is
    fixed.

    Neither a longer member nor a dropped group changes what another decision weighs.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in FixedLength(length=4)(counts).tolist()]
        [[0.125, 0.125], [0.125, 0.0]]

    Source: Dr. GRPO, arXiv 2503.20783, section 3.2 and its code.
    """

    kind: Literal["fixed_length"] = "fixed_length"
    length: Positive = 1024
    """`L`, in decisions: the generation limit, say."""

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / (counts.total(counts.real) * self.length))


@final
class MemberMean(AggregationSlot):
    """`w = 1 / (B n_b)`: the mean over members of the mean over their decisions.

    `B` counts every admitted member of the update, also one whose decisions are all masked.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in MemberMean()(counts).tolist()]
        [[0.25, 0.25], [0.5, 0.0]]

    Source: GRPO, arXiv 2402.03300, equation 3.
    """

    kind: Literal["member_mean"] = "member_mean"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / (counts.length.clamp(min=1) * counts.total(counts.admitted)))


@final
class MemberSum(AggregationSlot):
    """`w = 1 / B`, with `B` the admitted members of the update, also those whose decisions are all masked.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in MemberSum()(counts).tolist()]
        [[0.5, 0.5], [0.5, 0.0]]
    """

    kind: Literal["member_sum"] = "member_sum"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / counts.total(counts.admitted))


@final
class PromptMean(AggregationSlot):
    """`w = 1 / (P N_p)`: the mean over admitted prompts of the mean over all decisions of the prompt's members.

    A prompt is counted on the process that holds its group.

    Example:
        One prompt with three decisions.

        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in PromptMean()(counts).tolist()]
        [[0.333, 0.333], [0.333, 0.0]]

    Source: DAPO, arXiv 2503.14476, equation 8, read as the paper writes it: inside the group, then over prompts.
    """

    kind: Literal["prompt_mean"] = "prompt_mean"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        zeros = counts.length.new_zeros(counts.num_prompts)
        decisions_of_prompt = zeros.index_add(0, counts.prompt, counts.length[:, 0])
        prompts = zeros.index_add(0, counts.prompt, counts.admitted.double()) > 0
        return counts.spread(1 / (decisions_of_prompt.clamp(min=1)[counts.prompt, None] * counts.total(prompts)))


@final
class TokenMean(AggregationSlot):
    """`w = 1 / N` with `N` the valid decisions of admitted members in the whole update; the weights sum to 1.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in TokenMean()(counts).tolist()]
        [[0.333, 0.333], [0.333, 0.0]]

    Source: DAPO's token-level loss, arXiv 2503.14476, equation 12, taken over the whole update as verl and TRL do.
    """

    kind: Literal["token_mean"] = "token_mean"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / counts.total(counts.mask))


@final
class CallableAggregation(PieceFromPath, AggregationSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AggregationSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAggregation(path="groupwise.objective.aggregate:TokenMean").piece
        TokenMean(kind='token_mean')
    """

    base: ClassVar[type[AggregationSlot]] = AggregationSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)


Aggregation = Annotated[
    TokenMean | MemberMean | MemberSum | FixedLength | PromptMean | CallableAggregation, Field(discriminator="kind")
]
