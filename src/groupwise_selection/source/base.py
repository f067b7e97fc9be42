"""The checks of a source's queries: each error names the query (or example) and the field."""

from collections.abc import Sequence

import numpy as np

from groupwise.config import ConfigError
from groupwise_selection.example import Example, Query, Questions, distinct, embedding_fault
from groupwise_selection.reward.vqa import Comparison, comparable


def check(questions: Questions, shots: int, comparison: Comparison = "exact") -> None:
    """Refuses queries that allow no selection.

    Args:
        questions: queries of all splits.
        shots: highest number of demonstrations of a query.
        comparison: which answers count as the same.

    Raises:
        ConfigError: no query, duplicate ids, an empty pool or one smaller than `shots`, a missing answer, choices that
            count as the same, an embedding that is not finite, not of length 1 or of another size, a query inside its
            pool, under whatever id, or an example twice; the message names the query, the example and the field.
    """
    if not questions.train:
        raise ConfigError("source: there is no query to train on")
    if not questions.held_out:
        raise ConfigError("source: there is no held-out query; keep some apart")
    queries = [*questions.train, *questions.validation, *questions.held_out]
    size = queries[0].embedding.shape[0] if queries[0].embedding.ndim else 0
    query_ids: set[str] = set()
    examples: dict[str, Example] = {}
    for query in queries:
        where = f"source: query {query.id!r}"
        if query.id in query_ids:
            raise ConfigError(f"{where}: field id: two queries have this id; give each its own")
        query_ids.add(query.id)
        if not query.id:
            raise ConfigError(f"source: query {query.question!r}: field id is empty; give it a name")
        if not query.answers or not all(answer.strip() for answer in query.answers):
            raise ConfigError(
                f"{where}: field answers is {list(query.answers)!r}; give at least one answer, none of them empty"
            )
        if query.choices and query.answer not in query.choices:
            raise ConfigError(
                f"{where}: field choices is {list(query.choices)!r} without the answer {query.answer!r}; list every"
                " answer, or leave choices out"
            )
        _check_choices(query.choices, comparison, where)
        _check_embedding(query.embedding, size, where)
        _check_pool(query, shots, where)
        for example in query.pool:
            if examples.setdefault(example.id, example) is not example:
                raise ConfigError(f"{where}: field pool: two examples have the id {example.id!r}; give each its own")
    for example in questions.bank:
        examples.setdefault(example.id, example)
    for example in examples.values():
        user = "" if example.answer.strip() else next((query.id for query in queries if example in query.pool), "")
        check_example(example, size, f"source: example {example.id!r}", user)


def check_example(example: Example, size: int, where: str, user: str = "") -> None:
    """Refuses an example that cannot be shown.

    Args:
        example: the example to check.
        size: number of components of an embedding.
        where: name of the example in an error.
        user: id of a query whose pool holds the example.

    Raises:
        ConfigError: the id or the answer is missing, or the embedding does not fit; the message names the field.
    """
    if not example.id:
        raise ConfigError(f"source: example {example.question!r}: field id is empty; give it a name")
    if not example.answer.strip():
        raise ConfigError(
            f"{where}{f' in the pool of query {user!r}' if user else ''}: field answer is missing; a demonstration is"
            " shown with its answer"
        )
    _check_embedding(example.embedding, size, where)


def _check_choices(choices: Sequence[str], comparison: Comparison, where: str) -> None:
    places: dict[str, int] = {}
    for place, choice in enumerate(choices):
        other = choices[places.setdefault(comparable(choice, comparison), place)]
        if places[comparable(choice, comparison)] != place:
            advice = "" if comparison == "exact" else ', or write domain.answers = "exact"'
            raise ConfigError(
                f"{where}: field choices is {list(choices)!r}, where {other!r} and {choice!r} are one answer; list each"
                f" once{advice}"
            )


def _check_pool(query: Query, shots: int, where: str) -> None:
    if not query.pool:
        raise ConfigError(f"{where}: field pool is empty; give it at least {shots} examples")
    if len(query.pool) < shots:
        raise ConfigError(
            f"{where}: field pool has {len(query.pool)} examples, and shots = {shots} are to be picked; give more, or"
            " write domain.shots = less"
        )
    ids = [example.id for example in query.pool]
    if len(set(ids)) < len(ids):
        repeated_id = next(name for name in ids if ids.count(name) > 1)
        raise ConfigError(f"{where}: field pool has example {repeated_id!r} twice; list it once")
    if query.id in ids:
        raise ConfigError(f"{where}: field pool has the query itself, and its answer with it; take it out")
    if solved := next((example.id for example in query.pool if query.is_solved_by(example)), None):
        raise ConfigError(
            f"{where}: field pool has the query itself as example {solved!r}, and its answer with it; take it out"
        )
    kept = {example.id for example in distinct(query.pool)}
    if repeated := next((name for name in ids if name not in kept), None):
        raise ConfigError(
            f"{where}: field pool has the text of example {repeated!r} under another id too; list it once"
        )


def _check_embedding(embedding: np.ndarray, size: int, where: str) -> None:
    if fault := embedding_fault(embedding, size):
        raise ConfigError(f"{where}: field embedding {fault}")


def distinct_pools(queries: Sequence[Query]) -> bool:
    """Tests whether pools differ from query to query: true unless all of several queries share one pool.

    Example:
        >>> distinct_pools([])
        True
    """
    return len(queries) < 2 or len({frozenset(example.id for example in query.pool) for query in queries}) > 1
