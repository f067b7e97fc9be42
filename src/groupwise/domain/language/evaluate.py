"""Held-out evaluation: greedy and sampled, every reward and judge, lengths, and what was written."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.domain.language.config import DataConfig
from groupwise.domain.language.source import Rows
from groupwise.domain.protocol import Prompt
from groupwise.reward import RewardTable
from groupwise.reward.scoring.table import NOT_COLUMNS


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


# Sentences about the data, which a run prints before its first step.


def remarks_of_counts(counts: Mapping[str, int], limit: int | None, config: DataConfig) -> list[str]:
    """Returns remarks on rows and prompts that were left out, cut or held out.

    Args:
        counts: `LanguageDomain.counts`.
        limit: tokens of the longest prompt.
        config: the data; rows that are kept for evaluation are reported where no others are evaluated.
    """
    descriptions = {
        "num_removed": "rows left out of training, because a held-out prompt asks the same",
        "num_dropped": f"prompts left out, longer than {limit} tokens (domain.overlong = 'drop')",
        "num_truncated": f"prompts cut on the left, longer than {limit} tokens (domain.overlong = 'truncate')",
    }
    source = config.source
    if (isinstance(source, Rows) or not source.endless) and not config.evaluated_apart:
        evaluate_on_others = (
            "eval_data=ROWS" if isinstance(source, Rows) else 'domain.data.evaluation = { NAME = "FILE" }'
        )
        descriptions["num_held_out"] = (
            f"prompts kept from the rows for evaluation and never trained on ({evaluate_on_others} evaluates on"
            " others, domain.data.num_held_out sets how many)"
        )
    return [f"data: {text}: {counts[name]}" for name, text in descriptions.items() if counts[name]]


def remarks_of_form(rewards: Sequence[str], prompts: Sequence[Prompt]) -> list[str]:
    """Returns a remark on the rewards that read messages, since a function of texts may take a list without an error.

    Args:
        rewards: names of the rewards whose completions have the form of the prompts.
        prompts: prompts that are trained on.
    """
    if not rewards or not any(not isinstance(prompt.columns["prompt"], str) for prompt in prompts):
        return []
    return [
        f'rewards: {", ".join(rewards)}: prompts are messages, so completions are too, [{{"role": "assistant",'
        ' "content": "..."}], as in TRL (completions = "text" on a reward gives texts)'
    ]


def remarks_of_columns(prompts: Sequence[Prompt], added: Collection[str]) -> list[str]:
    """Returns a remark on columns that no reward sees, because it is given something else by the same name.

    Args:
        prompts: prompts that are trained on.
        added: columns that the domain itself adds.
    """
    present = set(prompts[0].columns) if prompts else set[str]()
    if not (hidden := sorted(present & {*NOT_COLUMNS, *added})):
        return []
    return [
        f"rewards: the columns {', '.join(hidden)} of the data are not passed on, since rewards are given what the"
        " run itself knows by these names; rename the columns where a reward should read them"
    ]
