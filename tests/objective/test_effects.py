"""What each method changes against GRPO, as its paper says, on batches where the difference is plain.

Every method is asked for `-N dL / dlp` of the same members: how hard each decision is pushed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish

Ratios = Sequence[Sequence[float]]


def push(
    name: str,
    ratios: Ratios,
    rewards: Sequence[float],
    *,
    group: Sequence[int] | None = None,
    old: float | Ratios = -1.5,
    second: Sequence[float] | None = None,
    steps: Ratios | None = None,
    shift: Ratios | None = None,
    divergence: Ratios | None = None,
    errors: tuple[Tensor, Tensor] | None = None,
    by: str = "",
    **keys: Any,
) -> Tensor:
    """`-N dL / dlp` `[B, T]` of members with these ratios, the reference being the live policy; by `mean_shift` where a
    shift is given, or by the field that `by` names.
    """
    objective = Objective.preset(name, **keys)
    width = max(len(row) for row in ratios)
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in ratios])

    def padded(rows: Ratios, fill: float) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.float64)

    old_log_prob = torch.full(mask.shape, old, dtype=torch.float64) if isinstance(old, float) else padded(old, 0.0)
    log_prob = (old_log_prob + padded(ratios, 1.0).log()).requires_grad_()
    moved = padded(shift or ratios, 0.0).requires_grad_()
    rollouts = Rollouts(
        torch.tensor(group or [0] * len(ratios)),
        mask,
        old_log_prob,
        {"first": list(rewards)} | ({"second": list(second)} if second else {}),
        reference_log_prob=log_prob.detach(),
        step_size=padded(steps, 1.0) if steps else torch.ones_like(old_log_prob),
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    zero = torch.zeros_like(old_log_prob)
    positive, negative = (value.requires_grad_() for value in errors or (zero.clone(), zero.clone()))
    scored = Scored(
        log_prob,
        entropy=zero,
        exact_divergence=zero,
        mean_shift=moved,
        old_divergence=padded(divergence, 0.0) if divergence else zero,
        positive_error=positive,
        negative_error=negative,
    )
    leaf = getattr(scored, by) if by else moved if shift else log_prob
    gradient = torch.autograd.grad(objective.loss(scored, plan).total, leaf, materialize_grads=True)[0]
    return -gradient * int(mask.sum())


def zero_gradient_fraction(name: str, ratios: Ratios, rewards: Sequence[float], sign: str) -> float:
    objective = Objective.preset(name)
    old = torch.full((len(ratios), len(ratios[0])), -4.0, dtype=torch.float64)
    rollouts = Rollouts(
        torch.zeros(len(ratios), dtype=torch.long),
        torch.ones_like(old, dtype=torch.bool),
        old,
        {"reward": list(rewards)},
        reference_log_prob=old,
    )
    log_prob = old + torch.tensor(ratios, dtype=torch.float64).log()
    loss = objective.loss(Scored(log_prob), objective.plan(objective.prepare(rollouts, objective.init())))
    return finish(loss.statistics)[f"zero_gradient_fraction/{sign}"]


def relative(name: str, *args: Any, **keys: Any) -> Tensor:
    """The push, scaled so that the largest is one: what does not depend on a method's scale."""
    pushes = push(name, *args, **keys)
    return pushes / pushes.abs().max()


def dapo() -> None:
    # A good token that grew by a quarter still learns.
    assert push("dapo", [[1.25], [1.0]], [1.0, 0.0])[0, 0] > 0 == push("grpo", [[1.25], [1.0]], [1.0, 0.0])[0, 0]
    token_mean("dapo")()
    # A flat group is sampled anew: it leaves the divisor too, so the other group is pushed twice as hard as by a token
    # mean over both.
    ratios, rewards, group = [[1.0]] * 4, [1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]
    pushes, plain = (push(name, ratios, rewards, group=group)[:, 0] for name in ("dapo", "bnpo"))
    assert float(pushes[0]) == pytest.approx(2 * float(plain[0]))
    assert pushes[2] == plain[2] == 0


def dr_grpo() -> None:
    # Groups of little spread weigh little, and long members' tokens weigh as much as short ones'.
    ratios, group = [[1.0] * 4, [1.0], [1.0], [1.0]], [0, 0, 1, 1]
    pushes, plain = (relative(name, ratios, [1.0, 0.0, 0.1, 0.0], group=group) for name in ("dr_grpo", "grpo"))
    assert float(pushes[0, 0] / -pushes[1, 0]) == pytest.approx(1.0)
    assert float(plain[0, 0] / -plain[1, 0]) == pytest.approx(0.25)
    assert float(pushes[2, 0] / pushes[1, 0].abs()) == pytest.approx(0.1)
    assert float(plain[2, 0] / plain[1, 0].abs()) == pytest.approx(1.0)


def token_mean(name: str) -> Callable[[], None]:
    def check() -> None:
        # Each token weighs the same, whatever its answer's length.
        pushes, plain = (push(method, [[1.0] * 4, [1.0]], [1.0, 0.0]) for method in (name, "grpo"))
        assert float(pushes[0, 0]) == pytest.approx(-float(pushes[1, 0]))
        assert float(plain[0, 0]) == pytest.approx(-float(plain[1, 0]) / 4)

    return check


def sequence_ratio(name: str) -> Callable[[], None]:
    def check() -> None:
        # One outlying token clips the whole answer, and tokens of one answer share one push.
        pushes, plain = (push(method, [[1.5, 1.0, 1.0], [1.0, 1.0, 1.0]], [1.0, 0.0]) for method in (name, "grpo"))
        assert pushes[0].tolist() == [0.0] * 3
        assert plain[0, 0] == 0
        assert plain[0, 1] > 0

    return check


def gspo_token() -> None:
    sequence_ratio("gspo_token")()
    # A credit acts on its tokens, and would cancel under GSPO's shared gradient.
    credit = {"credit.temporal_decay.gamma": 0.5}
    pushes = push("gspo_token", [[1.0, 1.0], [1.0, 1.0]], [1.0, 0.0], **credit)
    assert float(pushes[0, 0] / pushes[0, 1]) == pytest.approx(2.0)
    with pytest.raises(ConfigError, match="ineffective"):
        Objective.preset("gspo", **credit)


def lite_ppo() -> None:
    batch_scaled("lite_ppo")()
    token_mean("lite_ppo")()


def luspo() -> None:
    sequence_ratio("luspo")()
    # A long answer's tokens are pushed as hard as a short one's, by GSPO less by its length.
    pushes, plain = (push(name, [[1.0] * 4, [1.0]], [1.0, 0.0]) for name in ("luspo", "gspo"))
    assert float(pushes[0, 0] / -pushes[1, 0]) == pytest.approx(1.0)
    assert float(plain[0, 0] / -plain[1, 0]) == pytest.approx(0.25)


def gmpo() -> None:
    # An outlying ratio weighs little in a geometric mean, and the clip is wider.
    pushes, plain = (push(name, [[1.0, 1.0], [9.0, 1.0]], [1.0, 0.0], old=-3.0) for name in ("gmpo", "grpo"))
    assert float(pushes[1, 0] / pushes[0, 0]) == pytest.approx(-3.0)
    assert float(plain[1, 0] / plain[0, 0]) == pytest.approx(-9.0)
    assert push("gmpo", [[1.4], [1.0]], [1.0, 0.0])[0, 0] > 0 == push("grpo", [[1.4], [1.0]], [1.0, 0.0])[0, 0]


def cispo() -> None:
    # No token loses its gradient, on either side; its weight is capped.
    pushes, plain = (push(name, [[3.0, 100.0], [0.1, 1.0]], [1.0, 0.0], old=-9.0) for name in ("cispo", "grpo"))
    assert (pushes != 0).all()
    assert (plain != 0).tolist() == [[False, False], [False, True]]
    assert float(pushes[0, 1] / pushes[0, 0]) == pytest.approx(5.0 / 3.0)


def sapo() -> None:
    # Smooth where the clip has an edge: between ratio 1.19 and 1.21 GRPO falls to nothing, SAPO by a percent; bad
    # decisions fade faster.
    pushes, plain = (push(name, [[1.19, 1.21], [1.0, 1.0]], [1.0, 0.0]) for name in ("sapo", "grpo"))
    assert plain[0, 1] == 0 < plain[0, 0]
    assert abs(float(pushes[0, 1] / pushes[0, 0]) - 1.0) < 0.02
    good, bad = push("sapo", [[3.0], [3.0]], [1.0, 0.0], old=-3.0)[:, 0].tolist()
    assert 0 < -bad < good


def dppo(name: str) -> Callable[[], None]:
    def check() -> None:
        # A rare token may grow tenfold, a common one not from 0.84 to 1; GRPO says the opposite.
        rare = [push(method, [[10.0], [1.0]], [1.0, 0.0], old=math.log(1e-4))[0, 0] for method in (name, "grpo")]
        common = [push(method, [[1.19], [1.0]], [1.0, 0.0], old=math.log(0.84))[0, 0] for method in (name, "grpo")]
        assert rare[0] > 0 == rare[1]
        assert common[0] == 0 < common[1]

    return check


def rloo() -> None:
    # No ratio: off-policy the push is the advantage, and the member's tokens are summed.
    assert relative("rloo", [[4.0, 1.0], [0.2]], [1.0, 0.0]).tolist() == [[1.0, 1.0], [-1.0, 0.0]]


def reinforce_pp() -> None:
    # The batch is the comparison: a group that is all right is pushed up as a whole, by GRPO not at all.
    ratios, rewards, group = [[1.0]] * 4, [1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1]
    pushes, plain = (push(name, ratios, rewards, group=group)[:, 0] for name in ("reinforce_pp", "grpo"))
    assert pushes[0] == pushes[1] > 0 > pushes[2]
    assert not plain.any()


def batch_scaled(name: str) -> Callable[[], None]:
    def check() -> None:
        # One scale for the batch: a group of a tenth of the spread is pushed a tenth as hard, by GRPO just as hard.
        ratios, rewards, group = [[1.0]] * 4, [1.0, 0.0, 0.1, 0.0], [0, 0, 1, 1]
        pushes, plain = (push(method, ratios, rewards, group=group)[:, 0] for method in (name, "grpo"))
        assert float(pushes[2] / pushes[0]) == pytest.approx(0.1)
        assert float(plain[2] / plain[0]) == pytest.approx(1.0)

    return check


def topr() -> None:
    # Bad answers that the policy has left are hardly pushed further; good ones never lose their weight, however rare
    # they became.
    pushes = push("topr", [[0.1], [0.1], [10.0]], [1.0, -1.0, -1.0], old=-3.0)[:, 0]
    assert pushes.tolist() == pytest.approx([1.0, -0.1, -1.0])
    assert push("grpo", [[0.1], [0.1], [10.0]], [1.0, -1.0, -1.0], old=-3.0)[1, 0] == 0


def vespo() -> None:
    # The weight is the whole answer's: two tokens that cancel leave it at one, and it fades smoothly on both sides.
    pushes = push("vespo", [[2.0, 0.5], [1.0, 1.0]], [1.0, 0.0], old=-3.0)
    assert float(pushes[0, 0]) == pytest.approx(float(pushes[0, 1])) == pytest.approx(-float(pushes[1, 0]))
    plain = push("grpo", [[2.0, 0.5], [1.0, 1.0]], [1.0, 0.0], old=-3.0)
    assert plain[0, 0] == 0 < plain[0, 1]
    assert (
        0
        < push("vespo", [[3.0], [1.0]], [1.0, 0.0], old=-3.0)[0, 0]
        < 0.2 * push("vespo", [[1.0], [1.0]], [1.0, 0.0], old=-3.0)[0, 0]
    )


def opo() -> None:
    # Three tokens against one: the long good answer sets the baseline, so its own advantage is small and the short bad
    # one's large.
    pushes = push("opo", [[1.0] * 3, [1.0]], [1.0, 0.0])
    assert pushes[:, 0].tolist() == pytest.approx([0.25, -0.75])


def max_rl() -> None:
    # A success in four weighs nine times one of three: by GRPO three times.
    ratios, group = [[1.0]] * 8, [0] * 4 + [1] * 4
    pushes, plain = (push(name, ratios, [1.0, 0, 0, 0, 1, 1, 1, 0], group=group)[:, 0] for name in ("max_rl", "grpo"))
    assert float(pushes[0] / pushes[4]) == pytest.approx(9.0)
    assert float(plain[0] / plain[4]) == pytest.approx(3.0)


def gdpo() -> None:
    # A reward a hundred times smaller counts as much; by GRPO it drowns.
    ratios, first, second = [[1.0]] * 4, [100.0, 0.0, 100.0, 0.0], [1.0, 1.0, 0.0, 0.0]
    pushes, plain = (push(name, ratios, first, second=second)[:, 0] for name in ("gdpo", "grpo"))
    assert pushes[1] == pytest.approx(0.0, abs=1e-12)
    assert pushes[2] == pytest.approx(0.0, abs=1e-12)
    assert float(plain[2]) == pytest.approx(-float(plain[1]), rel=1e-9)
    assert float(plain[2] / plain[0]) > 0.95


def clip_cov() -> None:
    # The confident good token, whose covariance is highest, loses its gradient although its ratio is one.
    old = [[-0.1, -3.0, -3.0, -3.0], [-3.0] * 4]
    pushes, plain = (push(name, [[1.0] * 4, [1.0] * 4], [1.0, 0.0], old=old) for name in ("clip_cov", "bnpo"))
    assert pushes[0, 0] == 0 < plain[0, 0]
    assert pushes[:, 1:].tolist() == plain[:, 1:].tolist()


def kl_cov() -> None:
    # No clip: a good token far out still learns, and the top one is pulled back to where it was sampled.
    pushes, plain = (push(name, [[3.0, 1.5], [1.0, 1.0]], [1.0, 0.0], old=-3.0) for name in ("kl_cov", "bnpo"))
    assert plain[0].tolist() == [0.0, 0.0]
    advantage = 1 / math.sqrt(2)
    assert pushes[0].tolist() == pytest.approx([3.0 * advantage - 1.0, 1.5 * advantage])


def aspo() -> None:
    # The rarer a good token has become, the harder it is pushed: GRPO pushes it less.
    pushes, plain = (push(name, [[0.5, 1.0], [1.0, 1.0]], [1.0, 0.0])[0].tolist() for name in ("aspo", "grpo"))
    assert pushes[0] / pushes[1] == pytest.approx(2.0)
    assert plain[0] / plain[1] == pytest.approx(0.5)


def dual_clip() -> None:
    # A bad token that grew beyond three times is let go.
    assert (
        push("dual_clip", [[1.0], [4.0]], [1.0, 0.0], old=-3.0)[1, 0]
        == 0
        > push("grpo", [[1.0], [4.0]], [1.0, 0.0], old=-3.0)[1, 0]
    )


def flow_grpo() -> None:
    batch_scaled("flow_grpo")()
    assert push("flow_grpo", [[1.001], [1.0]], [1.0, 0.0])[0, 0] == 0 < push("grpo", [[1.001], [1.0]], [1.0, 0.0])[0, 0]


def flow_dppo() -> None:
    batch_scaled("flow_dppo")()
    # Both good members grew alike, and only one of them has diverged, which its single ratio does not tell.
    ratios, rewards, divergence = [[1.01], [1.01], [1.0]], [1.0, 1.0, 0.0], [[1e-6], [1e-4], [0.0]]
    pushes = push("flow_dppo", ratios, rewards, divergence=divergence)[:, 0]
    assert pushes[1] == 0 < pushes[0]
    assert push("flow_grpo", ratios, rewards)[:2, 0].tolist() == [0.0, 0.0]


def awm() -> None:
    # PPO's surrogate of another log-prob: within its wide clip it is Flow-GRPO's without one.
    batch_scaled("awm")()
    assert push("awm", [[1.5], [1.0]], [1.0, 0.0])[0, 0] > 0 == push("flow_grpo", [[1.5], [1.0]], [1.0, 0.0])[0, 0]


def diffusion_nft() -> None:
    # No log-prob moves; the errors do, the positive one of a good member more than its negative one.
    errors = torch.ones(2, 1, dtype=torch.float64)
    assert not push("diffusion_nft", [[1.5], [1.0]], [1.0, 0.0], errors=(errors, errors)).any()
    positive = push("diffusion_nft", [[1.0], [1.0]], [1.0, 0.0], errors=(errors.clone(), errors), by="positive_error")
    negative = push("diffusion_nft", [[1.0], [1.0]], [1.0, 0.0], errors=(errors, errors.clone()), by="negative_error")
    assert positive[0, 0] < negative[0, 0] < 0
    assert negative[1, 0] < positive[1, 0] < 0


def grpo_guard() -> None:
    # The log-ratio of both is below zero by the bias: Flow-GRPO holds the bad one and lets the good one pass. The shift
    # says that the good one moved on.
    ratios, rewards, shift = [[0.9997], [0.9997]], [1.0, 0.0], [[1e-5], [1e-7]]
    plain, pushes = push("flow_grpo", ratios, rewards)[:, 0], push("grpo_guard", ratios, rewards, shift=shift)[:, 0]
    assert plain[0] > 0 == plain[1]
    assert pushes[0] == 0 > pushes[1]
    # Divided by the step: half the step, twice the push.
    weighed = push("grpo_guard", [[1.0, 1.0], [1.0, 1.0]], rewards, steps=[[0.5, 0.25]] * 2, shift=[[0.0, 0.0]] * 2)
    assert float(weighed[0, 1] / weighed[0, 0]) == pytest.approx(2.0)


def rejection_sampling() -> None:
    assert push("rejection_sampling", [[1.0], [1.0]], [1.0, 0.0])[:, 0].tolist() == [1.0, 0.0]


def source_003() -> None:
    # The population's deviation: sqrt 2 times the push in a group of two.
    pushes, plain = (push(name, [[1.0], [1.0]], [1.0, 0.0])[0, 0] for name in ("source_003", "grpo"))
    assert float(pushes / plain) == pytest.approx(math.sqrt(2))


def ema() -> None:
    # What follows an outlying token feels a tenth of it: the token after a ratio of 3 is held as well.
    pushes, plain = (push(name, [[3.5, 1.0], [1.0, 1.0]], [1.0, 0.0], old=-3.0)[0].tolist() for name in ("ema", "bnpo"))
    assert pushes == [0.0, 0.0]
    assert plain[1] > 0


def gradient_adaptive() -> None:
    # A token e times less probable weighs e times as much, the mean staying one.
    old = [[-1.0, -2.0], [-1.0, -1.0]]
    pushes, plain = (
        push(name, [[1.0, 1.0], [1.0, 1.0]], [1.0, 0.0], old=old)[0].tolist() for name in ("gradient_adaptive", "bnpo")
    )
    assert pushes[1] / pushes[0] == pytest.approx(math.e)
    assert sum(pushes) == pytest.approx(sum(plain))


def amic() -> None:
    # One ratio a member, the arithmetic mean: (3 + 1) / 2 is held as a whole.
    pushes, plain = (
        push(name, [[3.0, 1.0], [1.0, 1.0]], [1.0, 0.0], old=-3.0)[0].tolist() for name in ("amic", "bnpo")
    )
    assert pushes == [0.0, 0.0]
    assert plain[1] > 0


def ptrw() -> None:
    # No edge: at ratio 1.25 a good token still learns; at 1.6 hardly; a bad one that grew to 2 is silenced.
    pushes = push("ptrw", [[1.25, 1.6], [1.0, 2.0]], [1.0, 0.0], old=-3.0)
    assert pushes[0, 0] > 0.3
    assert abs(float(pushes[0, 1])) < 0.02
    assert abs(float(pushes[1, 1])) < 1e-4
    assert push("bnpo", [[1.25, 1.6], [1.0, 2.0]], [1.0, 0.0], old=-3.0)[1, 1] < -1


def temporal_decay() -> None:
    pushes, plain = (push(name, [[1.0] * 3, [1.0] * 3], [1.0, 0.0])[0].tolist() for name in ("temporal_decay", "bnpo"))
    assert [pushes[1] / pushes[0], pushes[2] / pushes[1]] == pytest.approx([0.95, 0.95])
    assert sum(pushes) == pytest.approx(sum(plain))


def asymmetric_clip() -> None:
    # Room for good tokens (1.25), none for bad ones (0.85).
    pushes, plain = (push(name, [[1.25], [0.85]], [1.0, 0.0])[:, 0] for name in ("asymmetric_clip", "bnpo"))
    assert pushes[0] > 0 == pushes[1]
    assert plain[0] == 0 > plain[1]


WITHOUT = {
    "ema": {"smoothing.kind": "identity"},
    "gradient_adaptive": {"credit.gradient_adaptive.temperature": 1e15},
    "amic": {"ratio.kind": "token"},
    "ptrw": {"trust.kind": "clip"},
    "temporal_decay": {"credit.temporal_decay.gamma": 1.0},
    "asymmetric_clip": {"trust.kind": "clip"},
}


def combination(name: str, *effects: str) -> Callable[[], None]:
    def check() -> None:
        # Every innovation of a combination acts: without it the push is another.
        ratios = [[1.1, 0.9, 1.25], [0.85, 1.0, 1.2]]
        combined = push(name, ratios, [1.0, 0.0])
        for part in effects:
            assert (push(name, ratios, [1.0, 0.0], **WITHOUT[part]) - combined).abs().max() > 0.01, part

    return check


EFFECTS: dict[str, Callable[[], None]] = {
    "grpo": lambda: None,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
    "bnpo": token_mean("bnpo"),
    "gspo": sequence_ratio("gspo"),
    "gspo_token": gspo_token,
    "luspo": luspo,
    "gmpo": gmpo,
    "cispo": cispo,
    "sapo": sapo,
    "dppo_tv": dppo("dppo_tv"),
    "dppo_kl": dppo("dppo_kl"),
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": batch_scaled("reinforce_pp_baseline"),
    "topr": topr,
    "vespo": vespo,
    "lite_ppo": lite_ppo,
    "opo": opo,
    "max_rl": max_rl,
    "gdpo": gdpo,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "aspo": aspo,
    "dual_clip": dual_clip,
    "flow_grpo": flow_grpo,
    "flow_dppo": flow_dppo,
    "awm": awm,
    "diffusion_nft": diffusion_nft,
    "grpo_guard": grpo_guard,
    "rejection_sampling": rejection_sampling,
    "source_002": batch_scaled("source_002"),
    "source_003": source_003,
    "ema": ema,
    "gradient_adaptive": gradient_adaptive,
    "amic": amic,
    "ptrw": ptrw,
    "temporal_decay": temporal_decay,
    "asymmetric_clip": asymmetric_clip,
    "conservative": combination("conservative", "ema", "temporal_decay"),
    "aggressive": combination("aggressive", "amic", "gradient_adaptive", "ptrw"),
    "balanced": combination("balanced", "ema", "gradient_adaptive", "asymmetric_clip"),
    "all_compatible": combination("all_compatible", "ema", "gradient_adaptive", "temporal_decay", "asymmetric_clip"),
}


def test_every_method_says_what_it_changes() -> None:
    assert set(EFFECTS) == set(method_names())


@pytest.mark.parametrize("name", method_names())
def test_effect(name: str) -> None:
    EFFECTS[name]()


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("grpo", 1.0, 0.0), ("cispo", 0.0, 0.0), ("aspo", 1.0, 0.0), ("dual_clip", 1.0, 1.0), ("topr", 0.0, 0.0)],
)
def test_who_loses_the_gradient_where_both_grew_fourfold(name: str, good: float, bad: float) -> None:
    ratios, rewards = [[4.0, 4.0], [4.0, 4.0]], [1.0, -1.0]
    assert zero_gradient_fraction(name, ratios, rewards, "positive") == good
    assert zero_gradient_fraction(name, ratios, rewards, "negative") == bad
