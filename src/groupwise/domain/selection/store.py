"""Which solved examples an exported selector shows: those of one split, which agree with each other, or those of a
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.config import ConfigError, read_json_lines
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.example import Example, Questions
from groupwise.domain.selection.source.base import check_example
from groupwise.domain.selection.source.json_lines import Line, example_of, inline

SPLITS = ("held_out", "validation", "train")


def store(config: SelectionConfig, questions: Questions, which: str) -> list[Example]:
    """The solved examples of a selector that is exported.

    Examples of different splits may contradict each other (support tickets of another year, rules of other people), so
    they are never mixed. Where the source has one bank of which all pools are the nearest examples, every split's are
    that bank.

    Args:
        config: of the run.
        questions: of its source.
        which: a split, or a `.jsonl` file with `id`, `question` and `answer` on every line, and `embedding` where the
            run's source embeds nothing by itself.

    Raises:
        ConfigError: no such split or file, a line that cannot be read, an id that stands twice, or fewer examples than
            the policy was trained to show.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> config = load_experiment("selection_text").domain
        >>> {each.id.partition("-")[0] for each in store(config, config.source.read(), "held_out")}
        {'held_out'}
    """
    if which in SPLITS:
        split = getattr(questions, which)
        examples = list(questions.bank) or list(
            {example.id: example for query in split for example in query.pool}.values()
        )
    elif which.endswith(".jsonl"):
        examples = _of_file(config, Path(which))
    else:
        raise ConfigError(
            f"examples = {which!r}: write one of {', '.join(SPLITS)}, or a file that ends in .jsonl, one solved example"
            " a line"
        )
    if len(examples) < config.shots:
        raise ConfigError(
            f"examples = {which!r}: there are {len(examples)}, and the policy was trained to show {config.shots}; give"
            " at least as many"
        )
    return examples


def contradictions(examples: Sequence[Example]) -> int:
    """How many questions stand in a store with different answers; those with a picture are told apart by it.

    Args:
        examples: of the store.

    Example:
        >>> import numpy as np
        >>> one, other = (Example(answer, "2 + 2?", answer, np.ones(1, np.float32)) for answer in "45")
        >>> contradictions([one, other]), contradictions([one])
        (1, 0)
    """
    answers: dict[tuple[str, object], set[str]] = {}
    for example in examples:
        image = example.image if isinstance(example.image, str | None) else id(example.image)
        answers.setdefault((example.question, image), set()).add(example.answer)
    return sum(len(each) > 1 for each in answers.values())


def _of_file(config: SelectionConfig, path: Path) -> list[Example]:
    lines = [Line(row, where) for where, row in read_json_lines(path, "examples")]
    embedder = getattr(config.source, "embedder", None)
    if embedder is None:
        vectors = inline(lines, "train with an embedder of the source")
    else:
        vectors = embedder([line.text("question") for line in lines])
    found: dict[str, Example] = {}
    for line, vector in zip(lines, vectors, strict=True):
        example = example_of(line, vector, path)
        if found.setdefault(example.id, example) is not example:
            raise ConfigError(
                f"{line.where}: field id: {example.id!r} stands on an earlier line too; give each example its own"
            )
        check_example(example, len(vector), line.where)
    return list(found.values())
