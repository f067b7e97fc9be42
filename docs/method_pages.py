"""The pages of the methods, one each, from `presets/methods/*.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from page_text import arxiv_link, setting, table

DOCS = Path(__file__).resolve().parent


def method_index() -> str:
    """All methods, by what they are for."""
    from groupwise.objective.preset import methods_by_need, overlay_names, read_overlay

    blocks: list[str] = []
    for need, methods in methods_by_need().items():
        rows = [
            (f"[`{name}`]({name}.md)", method.summary, arxiv_link(method.paper.arxiv))
            for name, method in methods.items()
        ]
        blocks += [f"## {need}", table(("method", "in one line", "arXiv"), rows)]
    overlays = [(name, read_overlay(name)) for name in overlay_names()]
    return "\n\n".join(
        [
            "# Methods",
            (
                "Every method is data: a file that names its paper and states every slot of the objective, `matching`"
                " where it has one. Choose one with `method=NAME`, change a part of it with `slot.key=value`, lay an"
                " overlay on it with `method=NAME+OVERLAY`. `groupwise methods NAME` prints the same as its page."
            ),
            *blocks,
            "## Overlays\n\nThey correct for a sampler that is not the policy.",
            table(
                ("overlay", "in one line", "arXiv"),
                [(f"[`+{name}`]({name}.md)", each.summary, arxiv_link(each.paper.arxiv)) for name, each in overlays],
            ),
        ]
    )


def method_page(name: str) -> str:
    """One method: equation, paper, slots, how it fails, how it is used."""
    from groupwise.config import difference
    from groupwise.objective import Objective
    from groupwise.objective.preset import read_method

    method = read_method(name)
    slots = Objective.preset(name).model_dump(mode="json", exclude={"name"})
    plain = Objective.preset("grpo").model_dump(mode="json", exclude={"name"})
    parts = _about(name, method, "It maximises")
    parts += [
        "## Slots",
        table(("slot", "setting"), [(f"`{slot}`", setting(value)) for slot, value in slots.items()]),
    ]
    if name != "grpo":
        rows = [
            (f"`{key}`", setting(before), setting(after)) for key, (before, after) in difference(plain, slots).items()
        ]
        parts += ["## Difference from grpo", table(("key", "grpo", name), rows) if rows else "None."]
    parts += [
        "## Metrics",
        *_metric_rows(own_metrics(name)),
        "## Use",
        f"```bash\ngroupwise train language method={name}\n```",
        f'```python\nfrom groupwise import Objective\n\nobjective = Objective.preset("{name}")\n```',
        "## Citation",
        f"```bibtex\n{method.paper.bibtex(name)}\n```",
    ]
    return "\n\n".join(parts)


def overlay_page(name: str) -> str:
    """One overlay: what it multiplies by what, paper, slot, how it fails, how it is used."""
    from groupwise.objective.preset import read_overlay

    overlay = read_overlay(name)
    parts = _about(f"+{name}", overlay, "Laid on a method, it weighs the surrogate of each decision")
    parts += [
        "## Slots",
        table(("slot", "setting"), [(f"`{slot}`", setting(value)) for slot, value in overlay.objective.items()]),
        "## Metrics",
        *_metric_rows({"correction/mean": _meanings()["correction/mean"]}),
        "## Use",
        f"```bash\ngroupwise train language method=dapo+{name} domain.sampling.top_p=0.9\n```",
        f'```python\nfrom groupwise import Objective\n\nobjective = Objective.preset("dapo+{name}")\n```',
        "## Citation",
        f"```bibtex\n{overlay.paper.bibtex(name)}\n```",
    ]
    return "\n\n".join(parts)


def short_authors(authors: str) -> str:
    """Shortens BibTeX's authors as a text cites them; the citation at the end of the page has them all.

    Example:
        >>> short_authors("Yu, Qiying and Zhang, Zheng and Zhu, Ruofei")
        'Yu et al.'
        >>> short_authors("MiniMax")
        'MiniMax'
    """
    families = [author.split(",")[0] for author in authors.split(" and ")]
    return f"{families[0]} et al." if len(families) > 2 else " and ".join(families)


def _about(name: str, method: Any, verb: str) -> list[str]:
    paper = method.paper
    where = (f" {arxiv_link(paper.arxiv)}." if paper.arxiv else "") + (f" {paper.note}." if paper.note else "")
    parts = [
        f"# {name}",
        f"**{method.title}.** {method.summary}",
        f"{verb}\n\n\\[\n{method.equation}\n\\]",
        f"**Paper.** {paper.title}. {short_authors(paper.authors)}, {paper.year}.{where}",
        f"**When to use it.** {method.when}",
        f"**How it fails.** {method.failure}",
    ]
    if method.deviations:
        parts.append("**Where it differs from the paper.**\n\n" + "\n".join(f"- {line}" for line in method.deviations))
    return parts


def _metric_rows(own: dict[str, str]) -> Iterator[str]:
    every = "[those of every method](../guide/metrics.md)"
    yield f"Beside {every}:" if own else f"Only {every}."
    if own:
        yield table(("metric", "meaning"), [(f"`{metric}`", meaning) for metric, meaning in own.items()])


def own_metrics(name: str) -> dict[str, str]:
    """What a method measures that a region without bounds does not, from a small batch, with the meanings of the page
    of metrics.
    """
    from groupwise.objective import Objective

    bare = Objective.preset("bnpo", **{"trust.kind": "unbounded"})
    meanings = _meanings()
    return {metric: meanings[metric] for metric in sorted(_measured(Objective.preset(name)) - _measured(bare))}


def _measured(objective: Any) -> set[str]:
    import torch

    from groupwise import Rollouts, Scored
    from groupwise.statistics import finish

    wide = torch.full((4, 2), -1.0, dtype=torch.float64)
    mask = torch.ones(4, 2, dtype=torch.bool)
    rewards = {"first": [1.0, 0.0, 1.0, 0.0], "second": [0.0, 1.0, 2.0, 0.0]}
    rollouts = Rollouts(
        torch.tensor([0, 0, 1, 1]),
        mask,
        wide,
        rewards,
        behaviour_log_prob=wide,
        reference_log_prob=wide,
        step_size=-wide,
    )
    batch = objective.prepare(rollouts, objective.init())
    scored = Scored(
        wide + 0.1,
        entropy=-wide,
        exact_divergence=-wide,
        score_norm=-wide,
        mean_shift=wide,
        old_divergence=-wide,
        positive_error=-wide,
        negative_error=-wide,
    )
    return set(finish(batch.statistics)) | set(finish(objective.loss(scored, objective.plan(batch)).statistics))


def _meanings() -> dict[str, str]:
    """Metric -> meaning, from the table of the page of metrics; a cell may hold several names."""
    rows = re.findall(
        r"^\| (`.+?) \| (.+?) \|", (DOCS / "guide" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {metric: meaning for cell, meaning in rows for metric in re.findall(r"`([^`]+)`", cell)}
