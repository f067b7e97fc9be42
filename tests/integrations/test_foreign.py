"""The advantages of whole groups, from the token rewards that another trainer gives."""

from __future__ import annotations

import torch

from groupwise.integrations.foreign import group_advantage
from groupwise.objective import Objective


def test_a_reward_on_a_token_that_a_tool_wrote_counts() -> None:
    rewards = torch.zeros(4, 3)
    rewards[:, 2] = torch.tensor([1.0, 0.0, 2.0, 1.0])
    written = torch.ones(4, 3)
    written[0, 2] = 0  # A tool's reply, which the limit of tokens left at the end.
    written[3] = 0  # An answer that does not train at all is still one of its group.
    advantage = group_advantage(Objective.preset("dr_grpo"))(rewards, written, ["a", "a", "a", "a"])
    torch.testing.assert_close(advantage, torch.tensor([[0.0], [-1.0], [1.0], [0.0]]) * written)
