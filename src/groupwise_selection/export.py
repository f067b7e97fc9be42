"""A run's policy with solved examples, as a folder that selects without torch; see
`groupwise_selection.selector`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import ConfigError, read_json
from groupwise.domain.exported import Card, Export
from groupwise_selection.config import SelectionConfig
from groupwise_selection.example import Example, Questions
from groupwise_selection.policy.config import POLICY, WEIGHTS
from groupwise_selection.policy.numpy_pointer import NumpyPointer
from groupwise_selection.selector import IMAGES, Selector, Trained
from groupwise_selection.source.base import check_example
from groupwise_selection.source.files import ExampleLine, embeddings_of, read_lines

# The solved examples of an exported selector: those of one split, which agree with each other, or those of a file.

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
        ConfigError: the split or file does not exist, a line cannot be read, an id appears twice, or there are fewer
            examples than the policy was trained to show.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> sizes = [f"domain.source.num_{split}=2" for split in ("train", "validation", "held_out")]
        >>> config = load_experiment("selection_text", sizes).domain
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
    lines = read_lines(ExampleLine, path, "examples")
    embedder = getattr(config.source, "embedder", None)
    if embedder is None:
        vectors = embeddings_of(lines, "train with an embedder of the source")
    else:
        pictures = [line.example(np.zeros(0), path).image for line in lines.values()]
        vectors = embedder([line.question for line in lines.values()], pictures)
    examples = []
    for (place, line), vector in zip(lines.items(), vectors, strict=True):
        examples.append(line.example(vector, path))
        check_example(examples[-1], len(vector), place)
    return examples


def write_selector(config: SelectionConfig, model: Path, folder: Path, examples: str = "held_out") -> Selector:
    """Writes the folder of a selector: the policy, the examples that it will show, and the settings of its training.

    Args:
        config: configuration of the run.
        model: the policy's folder (`RUN/model`).
        folder: destination; created where it is missing.
        examples: a split or a file, see `store`.

    Returns:
        the selector.

    Raises:
        ConfigError: the folder holds no policy, its policy reads embeddings of another size than those of the examples,
            or as `store`.
    """
    for name in (POLICY, WEIGHTS):
        if not (model / name).is_file():
            raise ConfigError(f"{model}: no {name} in it; give a run of the selection domain")
    questions = config.source.read()
    selector = selector_of(
        config,
        questions,
        read_json(model / POLICY),
        (model / WEIGHTS).read_bytes(),
        store(config, questions, examples),
        str(model),
    )
    selector.save(folder)
    return selector


def selector_of(
    config: SelectionConfig,
    questions: Questions,
    table: dict[str, Any],
    weights: bytes,
    examples: Sequence[Example],
    where: str = "the policy",
) -> Selector:
    """Builds the selector that `write_selector` writes, in memory.

    Args:
        config: configuration of the run.
        questions: queries of its source.
        table: content of the policy's `policy.json`.
        weights: content of its `model.safetensors`.
        examples: the solved examples that it may show.
        where: name of the policy in an error.

    Raises:
        ConfigError: the policy reads embeddings of another size than those of the examples.
    """
    from safetensors.numpy import load

    policy = NumpyPointer(load(weights), int(table["policy"]["num_heads"]))
    sizes = {np.shape(example.embedding) for example in examples}
    if sizes != {(policy.embedding_size,)}:
        raise ConfigError(
            f"{where}: the policy reads embeddings of {policy.embedding_size} numbers, and the source has"
            f" {sorted(sizes)}; is it another source's?"
        )
    embedder, template = getattr(config.source, "embedder", None), getattr(config.task_model, "template", None)
    trained = Trained(
        shots=config.shots,
        order=config.order,
        pool_size=max(len(query.pool) for query in questions.train),
        embedder=None if embedder is None else embedder.model_dump(mode="json"),
        template=None if template is None else template.model_dump(mode="json"),
        task_model=str(table.get("task_model", "")),
    )
    return Selector(policy, table, trained, examples, weights, embedder)


# The export of a selector by `groupwise export`, and the sections of its card: its examples and its use.

_FOLDER = (
    "A policy that chooses demonstrations for a frozen task model, and the solved examples it chooses from, with"
    " their answers: whoever has the folder can",
    "read them (`examples.jsonl`). It selects in numpy (`groupwise.Selector`), for LangChain"
    " (`groupwise_selection.langchain`) and for DSPy",
    "(`groupwise_selection.dspy`). It was trained for one task model, one template and one embedder, named in"
    " `selector.json`; with others it is untested.",
)


def export(config: SelectionConfig, request: Export) -> Card:
    """Writes the selector, and measures it in use where `request.measure` is set.

    Args:
        config: configuration of the run.
        request: the policy and the destination.

    Returns:
        the sections of its card.

    Raises:
        ConfigError: as `write_selector`.
    """
    examples = request.examples or "held_out"
    selector = write_selector(config, request.model, request.folder, examples)
    contradicted = contradictions(selector.examples)
    remarks = (
        [
            f"{contradicted} question{'s stand' if contradicted > 1 else ' stands'} in the folder with more than one"
            " answer: the task model reads both"
        ]
        if contradicted
        else []
    )
    use_section = _use_section(config, selector, examples, request) if request.measure else _UNMEASURED
    chat = (selector.trained.template or {}).get("kind") == "chat"
    call, inside = (
        "messages(QUERY, IMAGE)" if chat else f"select(QUERY, {config.shots})",
        _inside(selector, request.folder),
    )
    return Card(
        loading=f'groupwise.Selector.load("{request.out}").{call}',
        prompts="queries",
        sections=["", "## As it is used", "", *use_section, "", "## What is in the folder", "", *inside, *_FOLDER],
        remarks=remarks,
    )


def _inside(selector: Selector, folder: Path) -> Sequence[str]:
    """Counts what the folder holds, and names what is outside of it and needed."""
    pictures = list((folder / IMAGES).glob("*"))
    megabytes = sum(picture.stat().st_size for picture in pictures) / 1e6
    shown = f", and {len(pictures)} pictures ({megabytes:.1f} MB) in `{IMAGES}/`" if pictures else ""
    embedder = selector.trained.embedder or {"kind": "your own, `Selector.load(..., embed=...)`"}
    template = selector.trained.template or {"kind": "none"}
    return [
        f"{len(selector.examples)} solved examples{shown}. Embedder: {' '.join(map(str, embedder.values()))}. Template:"
        f" {template['kind']}.",
        "",
    ]


_UNMEASURED = (
    "The folder was not measured as it is used; `groupwise evaluate FOLDER --experiment RUN` does it. The"
    " result above chose out of the run's pools.",
)


def _use_section(config: SelectionConfig, selector: Selector, examples: str, request: Export) -> Sequence[str]:
    """Measures a selector on the examples of its folder, for a section of the card."""
    import torch

    from groupwise_selection.evaluate import accuracy
    from groupwise_selection.measurement import Measures

    torch.set_num_threads(1)
    held_out = config.source.read().held_out
    columns = zip(
        *accuracy(selector, held_out, Measures(config.task_model.open("cpu"), config.accuracy, config.answers)),
        strict=True,
    )
    scores = [float(sum(column)) / len(held_out) for column in columns]
    pool = min(selector.trained.pool_size, len(selector.examples))
    source = (
        f"solved examples of {examples}"
        if examples.endswith(".jsonl")
        else f"solved examples of {examples.replace('_', '-')} queries"
    )
    return [
        f"Each of {len(held_out)} {request.evaluated_on.called('queries')} chose among the {pool} nearest of the"
        f" {len(selector.examples)} {source} in this folder, as",
        "`Selector.select` does; the result above chose out of the run's pools. VQA accuracy of the task model's"
        " answers:",
        "",
        "| demonstrations | " + " | ".join(map(str, range(1, config.shots + 1))) + " | mean |",
        "|---|" + "---|" * (config.shots + 1),
        "| as exported | " + " | ".join(f"{score:.3f}" for score in [*scores, sum(scores) / config.shots]) + " |",
        "",
        "`groupwise evaluate FOLDER --experiment RUN` measures it again, after examples came or went too.",
    ]
