"""Every epoch shows every prompt at most once, and a counter is all the memory there is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.streams import Streams
from groupwise.training.step.collect import draw_prompts


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 20), counts=st.lists(st.integers(1, 20), min_size=1, max_size=12), seed=st.integers(0, 5))
def test_no_draw_and_no_epoch_holds_a_prompt_twice(size: int, counts: list[int], seed: int) -> None:
    prompts_of_epoch: dict[int, list[int]] = {}
    drawn = 0
    for count in (min(count, size) for count in counts):
        indices, drawn = draw_prompts(Streams(seed), size, drawn, count)
        assert len(set(indices)) == count
        prompts_of_epoch.setdefault((drawn - 1) // size, []).extend(indices)
    assert all(
        len(set(indices)) == len(indices) and set(indices) <= set(range(size)) for indices in prompts_of_epoch.values()
    )


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    order_of_epoch, drawn = draw_prompts(Streams(0), 50, 0, 50)
    second, _ = draw_prompts(Streams(0), 50, drawn, 50)
    other_order, _ = draw_prompts(Streams(1), 50, 0, 50)
    assert sorted(order_of_epoch) == list(range(50))
    assert len({tuple(order_of_epoch), tuple(second), tuple(other_order)}) == 3
