"""The pointer network: it begins as nearest neighbours exactly, sees the pool as a set, and picks what it has never
seen.
"""

from __future__ import annotations

import torch
from tests.selection.policy.test_choices import network, pools

from groupwise_selection.policy.choices import draw_choices
from groupwise_selection.policy.config import Pointer
from groupwise_selection.policy.network import PointerNetwork, Pools


def test_before_training_it_picks_the_nearest_in_order() -> None:
    for stop in (False, True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            fresh = PointerNetwork(3, Pointer(width=8, num_heads=2, answer_size=5), stop=stop).double()
        given = pools(num=20, size=9)
        greedy = draw_choices(fresh, fresh.encode(given), 4, None, torch.ones(20, dtype=torch.float64))
        nearest = torch.einsum("pd,pnd->pn", given.query, given.pool).argsort(dim=1, descending=True, stable=True)[
            :, :4
        ]
        assert greedy.picks.tolist() == nearest.tolist()


def test_before_training_it_is_the_nearest_though_all_are_equally_near_or_hardly_any_is_left() -> None:
    fresh = PointerNetwork(3, Pointer(width=8, num_heads=2, answer_size=5), stop=True).double()
    flat = Pools(
        torch.tensor([[1.0, 0, 0]]).double(),
        torch.tensor([[[0.6, 0.8, 0.0]] * 40]).double(),
        torch.zeros(1, 40, 5).double(),
        torch.ones(1, 40).bool(),
    )
    for given, nearest in ((flat, [0, 1, 2, 3]), (pools(size=9, small=4), None)):
        greedy = draw_choices(fresh, fresh.encode(given), 4, None, torch.ones(1, dtype=torch.float64))
        order = (
            (given.pool[0] @ given.query[0])
            .masked_fill(~given.valid[0], -9)
            .argsort(descending=True, stable=True)[:4]
            .tolist()
        )
        assert greedy.picks[0].tolist() == (nearest or order)


def test_before_training_it_ends_with_the_configured_probability_at_every_decision_after_the_first() -> None:
    members = 6000
    fresh = PointerNetwork(3, Pointer(width=8, num_heads=2, answer_size=5, stop_probability=0.2), stop=True).double()
    given = pools(num=3, size=9, small=5)
    encoded = fresh.encode(given).of(torch.arange(3).repeat_interleave(members // 3))
    uniform = torch.rand(members, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = draw_choices(fresh, encoded, 4, uniform, torch.ones(members, dtype=torch.float64))
    probability = drawn.log_probs[..., -1].exp()
    assert float(probability[:, 0].max()) == 0.0
    torch.testing.assert_close(probability[:, 1:], torch.full_like(probability[:, 1:], 0.2))
    # One, two, three and four examples: .2, .8 x .2, .8^2 x .2, and what is left.
    shares = torch.bincount(drawn.lengths, minlength=5)[1:] / members
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.16, 0.128, 0.512]), atol=0.02, rtol=0)


def test_greedy_choice_ends_where_the_end_has_over_half_the_probability() -> None:
    fresh = PointerNetwork(3, Pointer(width=8, num_heads=2, answer_size=5, scale=0.1), stop=True).double()
    assert fresh.end_level is not None
    given = pools(num=1, size=20)
    for level, shots in ((-0.1, 4), (0.1, 1)):
        with torch.no_grad():
            fresh.end_level.fill_(level)
        greedy = draw_choices(fresh, fresh.encode(given), 4, None, torch.ones(1, dtype=torch.float64))
        assert float(greedy.log_probs[0, 1, -1]) > float(greedy.log_probs[0, 1, :-1].max())
        assert greedy.lengths.tolist() == [shots]


def test_logits_at_the_start_are_the_scaled_similarity() -> None:
    fresh = PointerNetwork(3, Pointer(width=8, num_heads=2, answer_size=5, scale=7.0)).double()
    given = pools()
    encoded = fresh.encode(given)
    found = fresh.logits(encoded, fresh.start(encoded), torch.tensor([[False, True, False, False]]))
    expected = 7.0 * (given.pool[0] @ given.query[0])
    expected[1] = float("-inf")
    torch.testing.assert_close(found[0], expected)


def test_the_order_of_the_pool_does_not_matter() -> None:
    made, given, order = network(), pools(), torch.tensor([2, 0, 3, 1])
    turned = Pools(given.query, given.pool[:, order], given.answers[:, order], given.valid[:, order])
    plain, other = (
        draw_choices(made, made.encode(each), 3, None, torch.ones(1, dtype=torch.float64)) for each in (given, turned)
    )
    assert order[other.picks[0]].tolist() == plain.picks[0].tolist()


def test_answers_and_earlier_picks_matter() -> None:
    made, given = network(), pools()
    encoded = made.encode(given)
    state, nothing = made.start(encoded), torch.zeros(1, 4, dtype=torch.bool)
    other = made.encode(Pools(given.query, given.pool, given.answers.flip(1), given.valid))
    assert not torch.allclose(made.logits(encoded, state, nothing), made.logits(other, made.start(other), nothing))
    after = [made.logits(encoded, made.advance(encoded, state, torch.tensor([pick])), nothing) for pick in (0, 1)]
    assert not torch.allclose(after[0], after[1])


def test_a_deeper_network_begins_with_the_weights_of_the_shallow_one_and_at_nearest_neighbours() -> None:
    def of(num_layers: int) -> PointerNetwork:
        torch.manual_seed(0)
        return PointerNetwork(2, Pointer(width=8, num_heads=2, num_layers=num_layers))

    shallow, deep = of(1), of(3)
    assert len(deep.more) == 2
    assert all(torch.equal(value, deep.state_dict()[name]) for name, value in shallow.state_dict().items())
    pools = Pools(
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[[0.6, 0.8], [1.0, 0.0]]]),
        torch.zeros(1, 2, 32),
        torch.ones(1, 2, dtype=torch.bool),
    )
    none = torch.zeros(1, 2, dtype=torch.bool)
    first, second = (network.encode(pools) for network in (shallow, deep))
    assert torch.equal(shallow.logits(first, shallow.start(first), none), deep.logits(second, deep.start(second), none))
    assert not torch.equal(first.items, second.items), "what is taken up has been through all layers"


def test_every_layer_of_a_deep_network_is_trained() -> None:
    torch.manual_seed(0)
    network = PointerNetwork(2, Pointer(width=8, num_heads=2, num_layers=3))
    with torch.no_grad():
        network.out.weight.normal_()
    pools = Pools(
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]]]),
        torch.randn(1, 3, 32),
        torch.ones(1, 3, dtype=torch.bool),
    )
    encoded = network.encode(pools)
    network.logits(encoded, network.start(encoded), torch.zeros(1, 3, dtype=torch.bool)).log_softmax(1)[0, 0].backward()
    for name, weight in network.more.named_parameters():
        assert weight.grad is not None, name
        assert bool(weight.grad.abs().sum() > 0), name
