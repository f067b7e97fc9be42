"""Sentences on the data that a run says before its first step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from groupwise.domain.language.config import DataConfig
from groupwise.domain.language.source import Rows
from groupwise.domain.protocol import Prompt
from groupwise.reward.scoring.columns import NOT_COLUMNS


def remarks_of_counts(counts: Mapping[str, int], limit: int | None, config: DataConfig) -> list[str]:
    """Says how many rows and prompts were left out, cut or kept apart.

    Args:
        counts: `LanguageDomain.counts`.
        limit: tokens of the longest prompt.
        config: the data; rows that are kept for evaluation are said where no others are evaluated.
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
    """Says which rewards read messages, since a function of texts may take a list without an error.

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
    """Says which columns of the data no reward sees, because it is given something else by the same name.

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
