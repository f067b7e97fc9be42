"""Every prompt weighs the same (DAPO's paper)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.counts import Counts
from groupwise.objective.slot import AggregationSlot


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
