"""The chain of credits: a product brought back to mean one."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.objective.small import close, member_ratios

from groupwise.objective.credit import Credit, GradientAdaptive, TemporalDecay


def test_empty_chain_is_uniform() -> None:
    assert Credit().uniform
    close(Credit()(member_ratios([1.0, None, 2.0])), [[1.0, 0.0, 1.0]])


def test_product_is_renormalised() -> None:
    # (1, 1/2) times (1, 3) in proportion: 1 : 1.5, mean one: 0.8, 1.2.
    chain = Credit(temporal_decay=TemporalDecay(gamma=0.5), gradient_adaptive=GradientAdaptive())
    close(chain(member_ratios([1.5, 0.5], [None])), [[0.8, 1.2], [0.0, 0.0]])
    assert not chain.uniform
    decisions = member_ratios([1.5, 0.5])
    assert set(chain.measure(chain.parts(decisions), decisions)) >= {
        "temporal_decay/weight_sum",
        "gradient_adaptive/weight_variance",
    }


def test_a_raw_link_leaves_the_product_as_it_is() -> None:
    chain = Credit(temporal_decay=TemporalDecay(gamma=0.5, raw=True), gradient_adaptive=GradientAdaptive())
    assert chain.raw
    close(chain(member_ratios([1.5, 0.5])), [[0.5, 0.75]])


def test_a_product_that_vanishes_everywhere_is_uniform() -> None:
    # The first credit leaves nothing after the second decision, the other nothing before the third; a masked decision
    # gets none.
    decisions = member_ratios([1.0, 1.0, 1.0, None])
    decisions = replace(decisions, log_prob=decisions.log_prob.detach() - torch.tensor([[0.0, 0.0, 900.0, 0.0]]))
    close(
        Credit(temporal_decay=TemporalDecay(gamma=1e-200), gradient_adaptive=GradientAdaptive())(decisions),
        [[1.0, 1.0, 1.0, 0.0]],
    )
