"""A run's policy with solved examples, as a folder that selects without torch; see
`groupwise.domain.selection.selector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import ConfigError, read_json
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.example import Example, Questions
from groupwise.domain.selection.policy.numpy_pointer import NumpyPointer
from groupwise.domain.selection.selector import POLICY, WEIGHTS, Selector, Trained
from groupwise.domain.selection.store import store


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
