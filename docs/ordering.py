"""The page that shows what the original's order of computation costs: source 000 as it was (`compat = "verl_rl"`)
beside ours, on the same inputs.

Everything on it is computed by the objective when the documentation is built.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise import Objective, Rollouts, Scored
from groupwise.statistics import finish

METHODS = {
    "ema": "2.1",
    "gradient_adaptive": "2.2",
    "amic": "2.3",
    "ptrw": "2.4",
    "temporal_decay": "2.5",
    "asymmetric_clip": "2.6",
    "conservative": "2.1 + 2.5",
    "aggressive": "2.3 + 2.2 + 2.4",
    "balanced": "2.1 + 2.2 + 2.6",
    "all_compatible": "2.1 + 2.2 + 2.5 + 2.6",
}
NUM_GROUPS, GROUP_SIZE, LONGEST = 8, 8, 500


@dataclass(frozen=True)
class Inputs:
    """Answers of 100 to 500 tokens in groups of eight, a third of them right. `[B, T]` in nats."""

    rollouts: Rollouts
    log_prob: Tensor


def inputs(token_drift: float, member_drift: float) -> Inputs:
    """A batch whose log-ratios are normal: a part of each token's own and a part that all tokens of an answer share.

    Args:
        token_drift, member_drift: standard deviations, in nats; both 0 is on-policy.
    """
    generator = torch.Generator().manual_seed(0)
    members = NUM_GROUPS * GROUP_SIZE
    length = torch.randint(100, LONGEST + 1, (members,), generator=generator)
    mask = torch.arange(LONGEST) < length[:, None]
    # Most tokens of a language model are nearly certain, some are open: surprisals whose mean is half a nat.
    surprisal = -0.5 * torch.rand(members, LONGEST, generator=generator, dtype=torch.float64).log()
    reward = (torch.rand(members, generator=generator) < 1 / 3).double()
    gap = token_drift * torch.randn(members, LONGEST, generator=generator, dtype=torch.float64)
    gap = gap + member_drift * torch.randn(members, 1, generator=generator, dtype=torch.float64)
    log_prob = -surprisal
    group = torch.arange(members) // GROUP_SIZE
    return Inputs(Rollouts(group, mask, (log_prob - gap).clamp(max=0), {"correct": reward}), log_prob)


@dataclass(frozen=True)
class Measured:
    """What one way of computing did on a batch. Shares are of the valid decisions with an advantage of that sign."""

    without_gradient: dict[str, float]
    wrong_way: dict[str, float]
    norm: float


def objective_of(method: str, original: bool) -> Objective:
    """A preset, with the dual clip at 3 that the original's code has wherever it clips."""
    dual = {"trust.kind": "dual_clip", "trust.bound": 3.0} if Objective.preset(method).trust.kind == "clip" else {}
    return Objective.preset(method, **dual, **({"compat": "verl_rl"} if original else {}))


def measure(objective: Objective, given: Inputs) -> Measured:
    """What the objective says of itself, and the gradient by the log-probs, decision by decision."""
    batch = objective.prepare(given.rollouts, objective.init())
    live = given.log_prob.clone().requires_grad_()
    loss = objective.loss(Scored(live), objective.plan(batch))
    push = -torch.autograd.grad(loss.total, live)[0]
    metrics = finish(loss.statistics)
    held = {"good": metrics["zero_gradient_fraction/positive"], "bad": metrics["zero_gradient_fraction/negative"]}
    advantage = batch.advantage.expand_as(push)
    shares = {"good": given.rollouts.mask & (advantage > 0), "bad": given.rollouts.mask & (advantage < 0)}

    def share(hits: Tensor) -> dict[str, float]:
        return {name: float(hits[where].double().mean()) for name, where in shares.items()}

    return Measured(held, share(push * advantage < 0), float(push.norm()))


def compare(given: Inputs) -> dict[str, tuple[Measured, Measured]]:
    """Method -> (the original's order, ours)."""
    return {
        method: (measure(objective_of(method, True), given), measure(objective_of(method, False), given))
        for method in METHODS
    }


def page() -> str:
    """The page as Markdown."""
    first, later = compare(inputs(0.0, 0.0)), compare(inputs(0.1, 0.1))
    bad = {
        method: (original.without_gradient["bad"], ours.without_gradient["bad"])
        for method, (original, ours) in first.items()
    }
    silent = f"{bad['temporal_decay'][0]:.0%}"
    parts = {"first": _table(first), "later": _table(later), "figure": figure(bad), "silent": silent}
    return _PAGE.format(groups=NUM_GROUPS, size=GROUP_SIZE, longest=LONGEST, **parts)


_PAGE = """\
# What the order of weights costs

Source 000 multiplies its weights into the ratio and clips the product. Groupwise smooths the ratio, clips it, and weighs what the clip left. The formulas
differ by one exchange; the updates do not resemble each other. Both stand below on the same inputs: the original's order is `compat = "verl_rl"`, which
reproduces values recorded from the original functions to 1e-9.

The inputs: {groups} groups of {size} answers, 100 to {longest} tokens each, a third of them right. Clips are at 0.2 with the dual clip at 3, as in the
original's code, in both columns.

- *Without gradient* is `zero_gradient_fraction`: the share of tokens, of good and of bad answers, whose gradient is zero (a Gaussian gate below a
  hundredth counts). Under EMA a token that is held itself still learns from those after it.
- *Wrong way* is the share of tokens pushed against their own advantage.
- The *gradient norm* is that of the loss by the log-probs.

## The first update on a batch

Every ratio is one, so no trust region has anything to do, and every token should be pushed.

{first}

{figure}

A credit whose *mean* is one is hardly ever one: a decay of 0.95 over some hundred tokens starts far above ten and ends near zero. The original's clip takes
both for a ratio that has left the trust region. Where the answer is bad it holds what lies below 0.8 and, by the dual clip, what lies above 3: {silent} of
the tokens of bad answers get no gradient, on data that the policy itself has just written. Where the answer is good it holds what lies above 1.2: the early
tokens, which the decay was meant to stress. So bad answers are hardly unlearned, and good ones are learned from their ends. Outside the clip the same
credit weighs, and silences nothing.

AMIC, the Gaussian gate and the asymmetric clip lose nothing yet: the original takes the mean of an answer's weighted ratios there, and that is one.

## After the policy has moved

Log-ratios now spread by a tenth of a nat a token, and by another tenth that all tokens of an answer share.

{later}

- **EMA** and **AMIC** alone are the same either way: they make the ratio, and the original makes it before the clip as well.
- **PTRW** of the original is one gate an answer, and it is differentiated. Beyond a ratio of 1.04 the gate falls faster than the ratio rises, so a bad
  answer whose ratio grew is *reinforced*, and a good one is pushed down: that is the wrong way, and the larger norm is made of it. Ours detaches the gate,
  which then never turns; what it silences far out is counted.
- **The asymmetric clip** of the original has no minimum and works on the answer's mean ratio: outside its width all tokens of the answer stop, also where
  the clip should pull back. Ours holds single tokens, on the side that leads on.
- **Combinations** inherit it: one credit inside a clip is enough, and a mean over the answer only delays it.

## Read it yourself

```python
from groupwise import Objective

ours = Objective.preset("balanced")
original = Objective.preset("balanced", compat="verl_rl")
```

```bash
groupwise train source_000 method=balanced compat=verl_rl
```

In a run, `zero_gradient_fraction/positive` and `zero_gradient_fraction/negative` are these shares, in every row of `metrics.jsonl`.
"""  # noqa: E501


def _table(found: dict[str, tuple[Measured, Measured]]) -> str:
    head = (
        "method",
        "innovations",
        "without gradient, good",
        "without gradient, bad",
        "wrong way, good",
        "wrong way, bad",
        "gradient norm",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method, (original, ours) in found.items():
        cells = [f"[`{method}`](../methods/{method}.md)", METHODS[method]]
        for name in ("without_gradient", "wrong_way"):
            cells += [
                _pair(f"{getattr(original, name)[sign]:.0%}", f"{getattr(ours, name)[sign]:.0%}")
                for sign in ("good", "bad")
            ]
        cells.append(_pair(f"{original.norm:.2g}", f"{ours.norm:.2g}"))
        lines.append("| " + " | ".join(cells) + " |")
    return "Original → ours.\n\n" + "\n".join(lines)


def _pair(original: str, ours: str) -> str:
    return original if original == ours else f"**{original}** → {ours}"


def figure(shares: dict[str, tuple[float, float]]) -> str:
    """Two bars a method, as SVG in the page: the share of bad answers' tokens without a gradient."""
    row, label, width = 26, 150, 420
    parts = []
    for place, (method, pair) in enumerate(shares.items()):
        top = place * row + 4
        parts.append(f'<text x="{label - 8}" y="{top + 14}" text-anchor="end">{method}</text>')
        for line, (share, opacity) in enumerate(zip(pair, (1.0, 0.35), strict=True)):
            y = top + line * 10
            parts.append(
                f'<rect x="{label}" y="{y}" width="{max(share * width, 1):.1f}" height="8" opacity="{opacity}"/>'
            )
            parts.append(
                f'<text x="{label + max(share * width, 1) + 6:.1f}" y="{y + 8}" font-size="9">{share:.0%}</text>'
            )
    height = len(shares) * row + 8
    title = "Share of the tokens of bad answers without a gradient, first update; dark: the original, light: ours"
    svg = (
        f'<svg viewBox="0 0 {label + width + 50} {height}" role="img" aria-label="{title}" font-size="12"'
        f' fill="currentColor">{"".join(parts)}</svg>'
    )
    return f"<figure>{svg}<figcaption>{title}</figcaption></figure>"
