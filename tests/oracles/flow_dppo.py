"""Flow-DPPO, arXiv 2606.11025, equations 14 and 18, as in its code (Tencent-Hunyuan/UniRL): Flow-GRPO without a clip,
where a transition is left out that has diverged by the threshold and moves on in the direction of its advantage.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, decisions, ratios_of, zero
from tests.oracles.flow_grpo import advantages_of
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, threshold: float = 1e-5) -> Tensor:
    """Mean over a member's transitions, then over members."""
    assert given.old_divergence is not None
    advantages = advantages_of(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            moves_on = float(ratio.detach()) > 1 if advantage > 0 else float(ratio.detach()) < 1
            if float(given.old_divergence[b, t]) >= threshold and advantage != 0 and moves_on:
                continue
            total = total - ratio * advantage / len(positions)
    return total / len(advantages)


# A = -+1.5811388. Member 0 (A < 0): 1.5 moves back and stays, 0.5 is left out. Member 2: 1.1 has not diverged, 1.5 is
# left out, 0.5 moves back. Loss -1.5811388 / 5 ((1.1 + 0.5) / 3 - 1.5 / 2). Gradients -r A / (5 n).
HAND = Hand(
    0.06851601597,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [-0.1159501809, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
)
