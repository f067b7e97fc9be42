"""The solved examples of an exported selector: those of one split, which agree with each other, or those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.config import ConfigError, read_json_lines
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.example import Example, Questions
from groupwise.domain.selection.source.base import check_example
from groupwise.domain.selection.source.json_lines import Line, example_of, inline

SPLITS = ("held_out", "validation", "train")


def store(config: SelectionConfig, questions: Questions, source: str) -> list[Example]:
    """Collects the solved examples of a selector that is exported.

    Examples of different splits may contradict each other (support tickets of another year, rules of other people), so
    they are never mixed. Where the source has one bank of which all pools are the nearest examples, the examples of
    every split are that bank.

    Args:
        config: configuration of the run.
        questions: queries of its source.
        source: a split, or a `.jsonl` file with `id`, `question` and `answer` on every line, and `embedding` where the
            run's source embeds nothing by itself.

    Raises:
        ConfigError: the split or file does not exist, a line cannot be read, an id stands twice, or there are fewer
            examples than the policy was trained to show.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> config = load_experiment("selection_text").domain
        >>> {example.id.partition("-")[0] for example in store(config, config.source.read(), "held_out")}
        {'held_out'}
    """
    if source in SPLITS:
        split = getattr(questions, source)
        examples = list(questions.bank) or list(
            {example.id: example for query in split for example in query.pool}.values()
        )
    elif source.endswith(".jsonl"):
        examples = _of_file(config, Path(source))
    else:
        raise ConfigError(
            f"examples = {source!r}: write one of {', '.join(SPLITS)}, or a file that ends in .jsonl, one solved"
            " example a line"
        )
    if len(examples) < config.shots:
        raise ConfigError(
            f"examples = {source!r}: there are {len(examples)}, and the policy was trained to show {config.shots}; give"
            " at least as many"
        )
    return examples


def contradictions(examples: Sequence[Example]) -> int:
    """Counts the questions of a store that have different answers; questions about different pictures are different.

    Args:
        examples: the solved examples of the store.

    Example:
        >>> import numpy as np
        >>> first_answer, second_answer = (Example(answer, "2 + 2?", answer, np.ones(1, np.float32)) for answer in "45")
        >>> contradictions([first_answer, second_answer]), contradictions([first_answer])
        (1, 0)
    """
    answers: dict[tuple[str, object], set[str]] = {}
    for example in examples:
        image = example.image if isinstance(example.image, str | None) else id(example.image)
        answers.setdefault((example.question, image), set()).add(example.answer)
    return sum(len(distinct_answers) > 1 for distinct_answers in answers.values())


def _of_file(config: SelectionConfig, path: Path) -> list[Example]:
    lines = [Line(row, where) for where, row in read_json_lines(path, "examples")]
    embedder = getattr(config.source, "embedder", None)
    if embedder is None:
        vectors = inline(lines, "train with an embedder of the source")
    else:
        vectors = embedder([line.text("question") for line in lines])
    examples: dict[str, Example] = {}
    for line, vector in zip(lines, vectors, strict=True):
        example = example_of(line, vector, path)
        if examples.setdefault(example.id, example) is not example:
            raise ConfigError(
                f"{line.where}: field id: {example.id!r} stands on an earlier line too; give each example its own"
            )
        check_example(example, len(vector), line.where)
    return list(examples.values())
