"""A run's policy with the examples of its questions, as a folder that selects without torch; see `groupwise.domain.selection.selector`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from groupwise.config import ConfigError, read_json
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.example import Example
from groupwise.domain.selection.policy.numpy_pointer import NumpyPointer
from groupwise.domain.selection.selector import POLICY, WEIGHTS, Selector, Trained


def write_selector(config: SelectionConfig, model: Path, folder: Path) -> Selector:
    """Writes the folder of a selector: the policy, every example of any pool, and what the policy was trained with.

    Args:
        config: of the run.
        model: the policy's folder (`RUN/model`).
        folder: where to; made where it is missing.

    Returns:
        The selector.

    Raises:
        ConfigError: the folder holds no policy, or its policy reads embeddings of another size than those of the source.
    """
    from safetensors.numpy import load

    for name in (POLICY, WEIGHTS):
        if not (model / name).is_file():
            raise ConfigError(f"{model}: no {name} in it; give a run of the selection domain")
    table, weights = read_json(model / POLICY), (model / WEIGHTS).read_bytes()
    questions = config.source.read()
    queries = [*questions.train, *questions.validation, *questions.held_out]
    examples: dict[str, Example] = {example.id: example for query in queries for example in query.pool}
    policy = NumpyPointer(load(weights), int(table["policy"]["num_heads"]))
    sizes = {np.shape(example.embedding) for example in examples.values()}
    if sizes != {(policy.embedding_size,)}:
        raise ConfigError(
            f"{model}: the policy reads embeddings of {policy.embedding_size} numbers, and the source has {sorted(sizes)}; is it another source's?"
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
    selector = Selector(policy, table, trained, list(examples.values()), weights, embedder)
    selector.save(folder)
    return selector
