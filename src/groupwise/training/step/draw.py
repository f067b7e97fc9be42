"""The prompts of a step: every epoch is a fresh permutation of the training set, which counters alone determine."""

from __future__ import annotations

from groupwise.streams import Streams


def draw_prompts(streams: Streams, num_prompts: int, drawn: int, count: int) -> tuple[list[int], int]:
    """Draws the next `count` prompts.

    Epoch `e` is the permutation keyed by `("prompts", e)`. A draw never crosses an epoch's end: where too few
    prompts of an epoch remain, they are left out (different ones in every epoch), so that no draw has a prompt twice.

    Args:
        streams: the random streams of the run.
        num_prompts: size of the training set.
        drawn: the counter that the last draw returned, 0 at first.
        count: the number of prompts, at most `num_prompts`.

    Returns:
        places in the training set, and the counter for the next draw.

    Example:
        >>> first, drawn = draw_prompts(Streams(0), 5, 0, 2)
        >>> second, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> len({*first, *second}), drawn
        (4, 4)
        >>> third, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> drawn
        7
    """
    assert 0 < count <= num_prompts
    epoch, place = divmod(drawn, num_prompts)
    if place + count > num_prompts:
        epoch, place = epoch + 1, 0
    order = streams.numpy("prompts", epoch).permutation(num_prompts)
    return [int(index) for index in order[place : place + count]], epoch * num_prompts + place + count
