"""Held-out evaluation: greedy and sampled, every reward and judge, lengths, and what was written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from groupwise.domain.protocol import Prompt
from groupwise.reward import RewardTable


@final
@dataclass(frozen=True)
class Written:
    """The model's answers to some prompts, `num_samples` completions each, prompt by prompt."""

    prompts: Sequence[Prompt]
    num_samples: int
    table: RewardTable
    texts: Sequence[str]
    lengths: Sequence[int]
    truncated: Sequence[bool]


def metric_names(mode: str, rewards: Sequence[str], num_samples: int) -> list[str]:
    """Lists the names that `metrics` may give, which are known without a model; those that rewards log themselves
    (`MODE/logged/NAME`) are not.

    Example:
        >>> metric_names("sampled", ["correct"], 2)
        ['sampled/reward', 'sampled/correct', 'sampled/length', 'sampled/truncated', 'sampled/pass@1', 'sampled/pass@2']
    """
    passes = [f"pass@{2**power}" for power in range(num_samples.bit_length())] if num_samples > 1 else []
    return [f"{mode}/{name}" for name in ("reward", *rewards, "length", "truncated", *passes)]


def metrics(mode: str, written: Written, first: str | None) -> dict[str, float]:
    """Computes means over all completions, called `mode/...`: the rewards' sum, each reward and judge, `length`,
    `truncated`, and `pass@k` for k = 1, 2, 4, ...

    Args:
        mode: `greedy` or `sampled`.
        first: the reward that decides which completions pass (0.5 or more); None leaves `pass@k` out.

    A reward that is missing for a completion is left out of its mean; one that is missing everywhere is left out
    altogether.
    """
    means: dict[str, float] = {}
    totals = [total for total in written.table.total("sum") if total is not None]
    if totals:
        means[f"{mode}/reward"] = math.fsum(totals) / len(totals)
    for name, values in written.table.values.items():
        present = [value for value in values if value is not None]
        if present:
            means[f"{mode}/{name}"] = math.fsum(present) / len(present)
    means |= {f"{mode}/{name}": value for name, value in written.table.logged_means().items()}
    means[f"{mode}/length"] = sum(written.lengths) / len(written.lengths)
    means[f"{mode}/truncated"] = sum(written.truncated) / len(written.truncated)
    if first is not None and written.num_samples > 1:
        values = written.table.values[first]
        passed = [
            sum((value or 0.0) >= 0.5 for value in values[start : start + written.num_samples])
            for start in range(0, len(values), written.num_samples)
        ]
        k = 1
        while k <= written.num_samples:
            means[f"{mode}/pass@{k}"] = math.fsum(pass_at(k, written.num_samples, count) for count in passed) / len(
                passed
            )
            k *= 2
    return means


def pass_at(k: int, num: int, passed: int) -> float:
    """Computes the chance that one of `k` completions passes, when `passed` of `num` did: `1 - C(num - passed, k) /
    C(num, k)`.

    Example:
        >>> pass_at(1, 4, 1), pass_at(2, 4, 1), pass_at(4, 4, 1), pass_at(2, 4, 0)
        (0.25, 0.5, 1.0, 0.0)

    Source: Chen et al. 2021, arXiv 2107.03374, equation 1.
    """
    return 1.0 - math.comb(num - passed, k) / math.comb(num, k)


def records(mode: str, written: Written, num_texts: int) -> list[Mapping[str, Any]]:
    """Writes one JSON-able record a completion: key, mode and rewards of all (for paired comparisons), prompt and text
    of the first `num_texts` prompts.
    """
    completion_records: list[Mapping[str, Any]] = []
    for place, text in enumerate(written.texts):
        number = place // written.num_samples
        prompt = written.prompts[number]
        record: dict[str, Any] = {
            "key": prompt.key,
            "mode": mode,
            "sample": place % written.num_samples,
            "rewards": {name: values[place] for name, values in written.table.values.items()},
            "num_tokens": written.lengths[place],
        }
        if number < num_texts:
            record |= {"prompt": prompt.columns["prompt"], "text": text}
            if written.table.extras:
                record["logged"] = {column: entries[place] for column, entries in written.table.extras.items()}
        completion_records.append(record)
    return completion_records
