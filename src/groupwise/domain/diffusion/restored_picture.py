"""The picture of an evaluation whose prompts are images: input, drawn image and target, and what was read in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from groupwise.domain.protocol import Prompt
from groupwise.domain.side_by_side import answers_in, side_by_side
from groupwise.reward import RewardTable


def restored_picture(
    prompts: Sequence[Prompt],
    images: Sequence[Tensor],
    table: RewardTable,
    num_images: int,
    read: Callable[[Sequence[Tensor]], RewardTable],
) -> Tensor | None:
    """Draws the first image of each prompt below what the model was shown, and above the targets, where all have one.

    Args:
        prompts: with their images.
        images: uint8 each, `num_images` a prompt.
        table: rewards of the images, in this order.
        num_images: images a prompt.
        read: rewards of other images of the same prompts, one each.

    Returns:
        uint8 `[H, W(, 3)]`; None where there is no prompt.
    """
    restored = [images[place * num_images] for place in range(len(prompts))]
    rows = {
        name: [prompt.columns[name].picture for prompt in prompts]
        for name in ("degraded", "clean")
        if all(prompt.columns.get(name) is not None for prompt in prompts)
    }
    first = table.select(range(0, len(prompts) * num_images, num_images))
    answers = answers_in(first, rows, read)
    words = [_word(prompt.columns) for prompt in prompts]
    return side_by_side(rows["degraded"], restored, rows.get("clean", []), answers, words)


def _word(columns: Mapping[str, Any]) -> str:
    """Returns what a prompt asks for: its text, or else its class; empty where its row has neither."""
    present = [columns[name] for name in ("text", "label") if columns.get(name) is not None]
    return str(present[0]) if present else ""
