"""A trained policy with its examples, for applications that build prompts: `select(query, k)` in numpy. Imports no
torch.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, final

import numpy as np

from groupwise.config import ConfigError, read_json, validate
from groupwise_selection.embedder import ClipEmbedder, HashedWords, answer_features
from groupwise_selection.example import LENGTH_TOLERANCE, Example, distinct, embedding_fault
from groupwise_selection.policy.config import POLICY, WEIGHTS
from groupwise_selection.policy.numpy_pointer import NumpyPointer
from groupwise_selection.task_model.template import ChatTemplate, TextTemplate

Embed = Callable[[Sequence[str]], np.ndarray]
Order = Literal["first_pick_first", "first_pick_last"]

SELECTOR, EXAMPLES, EMBEDDINGS, IMAGES = "selector.json", "examples.jsonl", "embeddings.safetensors", "images"
_PROBES = 4


@final
@dataclass(frozen=True)
class Trained:
    """The settings of the policy's training, which its users have to repeat.

    Args:
        shots: number of demonstrations of a query.
        order: place of the first pick in a prompt: at its beginning, or next to the query.
        pool_size: number of examples in a pool.
        embedder: the embedder as a table: `{"kind": "hashed_words", ...}`, or `{"name": ...}` for a user's function.
        template: the template of the task model as a table; unset where it has none.
        task_model: fingerprint of the task model.
    """

    shots: int
    order: Order
    pool_size: int
    embedder: dict[str, Any] | None = None
    template: dict[str, Any] | None = None
    task_model: str = ""


@final
class Selector:
    """Picks demonstrations for a query, in order, by a trained policy.

    Args:
        policy: the network.
        table: content of `policy.json`.
        trained: the settings of its training.
        examples: the solved examples that may be shown.
        weights: content of `model.safetensors`.
        embed: embeds texts as vectors, `clip` with their pictures; without it, queries and new examples need vectors.

    Example:
        >>> selector = Selector.load("exported")  # doctest: +SKIP
        >>> [example.answer for example in selector.select("north gold web kim new atlas", 2)]  # doctest: +SKIP
        ['birch', 'amber']
    """

    def __init__(
        self,
        policy: NumpyPointer,
        table: dict[str, Any],
        trained: Trained,
        examples: Sequence[Example],
        weights: bytes,
        embed: Embed | None = None,
    ) -> None:
        self.policy, self.trained, self.embed = policy, trained, embed
        self._table, self._weights = table, weights
        self._examples: dict[str, Example] = {}
        self._features: dict[str, np.ndarray] = {}
        self._matrix: np.ndarray | None = None
        for example in examples:
            self._keep(example)

    @property
    def examples(self) -> tuple[Example, ...]:
        """The examples that may be shown, in the order in which they were added."""
        return tuple(self._examples.values())

    def select(
        self,
        query: str | np.ndarray,
        k: int | None = None,
        *,
        image: Any = None,
        pool: Sequence[str] | None = None,
        order: Order | None = None,
    ) -> list[Example]:
        """Chooses demonstrations for a query, in the order in which the prompt shows them.

        The policy chooses out of a pool: the examples nearest to the query, as many as in training, or the examples of
        `pool`.

        Args:
            query: its text, or its embedding `[D]` of length 1.
            k: number of demonstrations; unset takes as many as in training, 0 gives none. The result is shorter where
                the policy may end early and does.
            image: its picture, where the embedder looks at pictures: a path, or a `uint8` array.
            pool: ids of the examples to choose from.
            order: `first_pick_first`, or `first_pick_last` (next to the query); unset takes the order of training.

        Raises:
            ConfigError: the query has no valid embedding, the pool has an unknown id, `k` exceeds the pool, or the
                query is a text and there is no embedder.
        """
        vector = self._embedded(query, "query", image)
        num_shown = self.trained.shots if k is None else k
        pool_ids = self._pool(vector, pool)
        if not isinstance(num_shown, int | np.integer) or isinstance(num_shown, bool):
            raise ConfigError(f"k = {num_shown!r} is no whole number; write 0 to {len(pool_ids)}")
        if num_shown == 0:
            return []
        if not pool_ids:
            raise ConfigError("there are no examples to choose from; add some, or name some in pool")
        if not 0 < num_shown <= len(pool_ids):
            raise ConfigError(
                f"k = {num_shown}: {len(pool_ids)} of {len(self._examples)} examples are there to choose from (those"
                f" nearest to the query, or those of pool); write 0 to {len(pool_ids)}, or name more in pool"
            )
        pool_examples = [self._examples[example_id] for example_id in pool_ids]
        vectors = np.stack([example.embedding for example in pool_examples])
        answers = np.stack([self._features[example_id] for example_id in pool_ids])
        picked = [pool_examples[place] for place in self.policy.picks(vector, vectors, answers, num_shown)[0]]
        prompt_order = order or self.trained.order
        if prompt_order not in ("first_pick_first", "first_pick_last"):
            raise ConfigError(f"order = {prompt_order!r}; write first_pick_first or first_pick_last")
        return picked if prompt_order == "first_pick_first" else picked[::-1]

    def nearest(self, query: str | np.ndarray, *, without: Collection[str] = ()) -> list[Example]:
        """Finds the default pool of `select`: the examples nearest to the query, as many as a pool of training had,
        each text once.

        Args:
            query: its text, or its embedding `[D]` of length 1.
            without: ids of examples that are left out, such as the query itself where it is among the examples.

        Raises:
            ConfigError: the query cannot be embedded.
        """
        vector = self._embedded(query, "query")
        ids = list(self._examples)
        if not ids:
            return []
        order = np.argsort(-(self._vectors() @ vector), kind="stable").tolist()
        near = (self._examples[ids[place]] for place in order if ids[place] not in without)
        chosen = {example.id for example in islice(distinct(near), self.trained.pool_size)}
        return [example for example in self._examples.values() if example.id in chosen]

    def prompt(self, query: str, k: int | None = None) -> str:
        """Writes the prompt of a query with its demonstrations, by the template of the task model.

        Raises:
            ConfigError: the task model's template is not a text; or see `select`.
        """
        if self.trained.template is None or self.trained.template.get("kind") != "text":
            raise ConfigError(
                "the task model of this selector has no text template; write messages(query, image) where it is a chat,"
                " or build the prompt from select(query, k)"
            )
        template = validate(TextTemplate, self.trained.template, SELECTOR)
        if template.num_images:
            raise ConfigError(
                "the template of this selector shows pictures, which a text has no place for; build the prompt from"
                " select(query, k), whose examples have an image"
            )
        return template.prompt(query, [(example.question, example.answer) for example in self.select(query, k)])

    def messages(self, query: str, image: Any = None, k: int | None = None) -> list[dict[str, Any]]:
        """Writes the turns of a query with its demonstrations and their pictures, as the task model was asked: what
        `processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)` takes.

        Args:
            query: its text.
            image: its picture, where the template shows pictures: a path, or a `uint8` array `[H, W]` or `[H, W, 3]`.
            k: number of demonstrations, see `select`.

        Raises:
            ConfigError: the task model's template is no chat, the picture is missing, or see `select`.
        """
        if self.trained.template is None or self.trained.template.get("kind") != "chat":
            raise ConfigError("the task model of this selector has no chat template; write prompt(query, k)")
        template = validate(ChatTemplate, self.trained.template, SELECTOR)
        if template.num_images and image is None:
            raise ConfigError(
                "image is missing, and the template shows one with each question; give a path or an array"
            )
        shown = self.select(query, k, image=image)
        turns = template.messages(query, [(example.question, example.answer) for example in shown])
        pictures = iter([*(example.image for example in shown), image])
        for part in (part for turn in turns if isinstance(turn["content"], list) for part in turn["content"]):
            if part["type"] == "image":
                picture = next(pictures)
                part["image"] = str(picture) if isinstance(picture, str | Path) else _as_pil(picture)
        return turns

    def add(
        self,
        question: str,
        answer: str,
        *,
        id: str | None = None,
        embedding: np.ndarray | None = None,
        image: Any = None,
    ) -> str:
        """Adds an example: it can be picked from now on, without training.

        Args:
            question, answer: texts of the example.
            id: name of the example; unset takes a new one.
            embedding: `[D]` of length 1; unset embeds the question.
            image: its picture, a path or a `uint8` array.

        Returns:
            the id.

        Raises:
            ConfigError: the id exists already, the answer is empty, or the embedding does not fit.
        """
        if id is None:
            number = len(self._examples)
            while f"added-{number}" in self._examples:
                number += 1
            id = f"added-{number}"
        if id in self._examples:
            raise ConfigError(f"example {id!r}: field id is there already; give it another")
        for name, text in (("id", id), ("question", question), ("answer", answer)):
            if not isinstance(text, str):
                raise ConfigError(f"example {id!r}: field {name} is {text!r} ({type(text).__name__}); write a text")
        if not answer.strip():
            raise ConfigError(f"example {id!r}: field answer is {answer!r}; a demonstration is shown with its answer")
        vector = self._embedded(question if embedding is None else embedding, f"example {id!r}", image)
        self._keep(Example(id, question, answer, vector, image))
        return id

    def remove(self, id: str) -> None:
        """Removes an example.

        Raises:
            ConfigError: no example has this id.
        """
        if id not in self._examples:
            raise ConfigError(
                f"example {id!r} is not here; there are {len(self._examples)} examples, the first is"
                f" {next(iter(self._examples), None)!r}"
            )
        del self._examples[id], self._features[id]
        self._matrix = None

    def save(self, folder: str | Path) -> None:
        """Writes a folder that `load` reads, with hashes of the policy, the data, the embedder, the template and the
        settings. Pictures are copied into `images/`, each named by its hash.

        Args:
            folder: destination; created where it is missing.
        """
        from safetensors.numpy import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(_as_json(example, folder), ensure_ascii=False) + "\n" for example in self.examples]
        examples = "".join(lines).encode()
        vectors = self._vectors() if self._examples else np.zeros((0, self.policy.embedding_size), np.float32)
        embeddings = save({"embeddings": np.ascontiguousarray(vectors, dtype=np.float32)})
        (folder / WEIGHTS).write_bytes(self._weights)
        policy = (json.dumps(self._table, indent=2) + "\n").encode()
        (folder / POLICY).write_bytes(policy)
        (folder / EXAMPLES).write_bytes(examples)
        (folder / EMBEDDINGS).write_bytes(embeddings)
        hashes = _hashes(policy + self._weights, examples + embeddings, self.trained)
        trained = vars(self.trained)
        (folder / SELECTOR).write_text(json.dumps({**trained, "hashes": hashes}, indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: str | Path, *, embed: Embed | None = None, template: TextTemplate | None = None) -> Selector:
        """Reads a folder that `groupwise export RUN` or `save` wrote.

        Args:
            embed: the function of the embeddings, where it is the user's; some examples are embedded again to check it.
            template: template of the prompts to be written; refused where the policy was trained with another.

        Raises:
            ConfigError: a file is missing, damaged or changed since it was saved, the embedder computes different
                vectors, or the template is another.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        folder = Path(folder)
        for name in (SELECTOR, POLICY, WEIGHTS, EXAMPLES, EMBEDDINGS):
            if not (folder / name).is_file():
                raise ConfigError(f"{folder}: no {name} in it; give a folder that `groupwise export RUN` wrote")
        record, table = read_json(folder / SELECTOR), read_json(folder / POLICY)
        weights, examples, embeddings = ((folder / name).read_bytes() for name in (WEIGHTS, EXAMPLES, EMBEDDINGS))
        names = [*Trained.__dataclass_fields__, "hashes"]
        if set(record) != set(names) or not isinstance(record["hashes"], dict):
            raise ConfigError(
                f"{folder}: {SELECTOR} holds {', '.join(record)}, not {', '.join(names)}; it is not what was saved, so"
                " export again"
            )
        trained = Trained(**{name: value for name, value in record.items() if name != "hashes"})
        hashes = _hashes((folder / POLICY).read_bytes() + weights, examples + embeddings, trained)
        for name, value in hashes.items():
            if record["hashes"].get(name) != value:
                where = {"policy": f"{POLICY} or {WEIGHTS}", "data": f"{EXAMPLES} or {EMBEDDINGS}"}.get(
                    name, f"{name} in {SELECTOR}"
                )
                raise ConfigError(
                    f"{folder}: {where} is not what was saved (its hash differs); export again, or change examples with"
                    " add, remove and save"
                )
        if template is not None and template.model_dump(mode="json") != trained.template:
            raise ConfigError(
                f"{folder}: it was trained with the template {trained.template}, not"
                f" {template.model_dump(mode='json')}; use that one, or train again"
            )
        try:
            network, vectors = load(weights), load(embeddings)["embeddings"]
        except (SafetensorError, KeyError) as error:
            raise ConfigError(f"{folder}: {WEIGHTS} or {EMBEDDINGS} cannot be read: {error}; export again") from error
        own: Any = trained.embedder or {}
        if embed is None and own.get("kind") == "hashed_words":
            embed = validate(HashedWords, own, str(folder / SELECTOR))
        elif embed is None and own.get("kind") == "clip" and Path(own["path"]).is_dir():
            embed = validate(ClipEmbedder, own, str(folder / SELECTOR))
        rows = [json.loads(line) for line in examples.splitlines()]
        for row in rows:
            row["image"] = None if row["image"] is None else _checked_picture(folder / row["image"], row["id"])
        stored_examples = [Example(**{**row, "embedding": vector}) for row, vector in zip(rows, vectors, strict=True)]
        selector = Selector(
            NumpyPointer(network, int(table["policy"]["num_heads"])), table, trained, stored_examples, weights, embed
        )
        if embed is not None:
            selector._check_embedder(folder)
        return selector

    def _check_embedder(self, folder: Path) -> None:
        probes = self.examples[:: max(1, len(self._examples) // _PROBES)][:_PROBES]
        for example in probes:
            again = self._embedded(example.question, f"example {example.id!r}", example.image)
            if float(np.abs(again - example.embedding).max()) > LENGTH_TOLERANCE:
                raise ConfigError(
                    f"{folder}: the embedder gives example {example.id!r} another vector than the one it was saved with"
                    f" (cosine {float(again @ example.embedding):.3f}); use the embedder of training,"
                    f" {self.trained.embedder}, or export again"
                )

    def _keep(self, example: Example) -> None:
        self._examples[example.id] = example
        self._features[example.id] = answer_features(example.answer, self.policy.answer_size)
        self._matrix = None

    def _vectors(self) -> np.ndarray:
        """Stacks the embeddings of all examples, once until an example is added or removed."""
        if self._matrix is None:
            self._matrix = np.stack([example.embedding for example in self._examples.values()])
        return self._matrix

    def _pool(self, vector: np.ndarray, pool: Sequence[str] | None) -> list[str]:
        if pool is not None:
            pool_ids = list(pool)
            for example_id in pool_ids:
                if example_id not in self._examples:
                    raise ConfigError(f"pool: there is no example {example_id!r}")
            if len(set(pool_ids)) < len(pool_ids):
                twice = next(example_id for example_id in pool_ids if pool_ids.count(example_id) > 1)
                raise ConfigError(f"pool: example {twice!r} is listed twice; list it once")
            kept = {example.id for example in distinct(self._examples[example_id] for example_id in pool_ids)}
            if repeated := next((example_id for example_id in pool_ids if example_id not in kept), None):
                raise ConfigError(f"pool: example {repeated!r} has the text of another one; list one of them")
            return pool_ids
        return [example.id for example in self.nearest(vector)]

    def _embedded(self, query: str | np.ndarray, subject: str, image: Any = None) -> np.ndarray:
        if isinstance(query, str):
            if self.embed is None:
                raise ConfigError(
                    f"{subject} is a text, and this selector has no embedder (trained with {self.trained.embedder});"
                    " give Selector.load(folder, embed=...), or an embedding"
                )
            looks, embed = (self.trained.embedder or {}).get("kind") == "clip", cast(Any, self.embed)
            vector = np.asarray(embed([query], [image]) if looks else embed([query]), dtype=np.float32)
            vector = vector[0] if vector.ndim == 2 and len(vector) == 1 else vector
        else:
            vector = np.asarray(query, dtype=np.float32)
        if fault := embedding_fault(vector, self.policy.embedding_size):
            raise ConfigError(f"{subject}: its embedding {fault}")
        return vector


def _as_pil(pixels: Any) -> Any:
    from PIL import Image

    return Image.fromarray(np.asarray(pixels))


def _checked_picture(path: Path, name: str) -> str:
    """Returns the path of a stored picture, whose name is its hash."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(f"example {name!r}: field image: {reason}; export again") from None
    if not found.startswith(path.stem):
        reason = f"{path} is not what was saved (its hash differs)"
        raise ConfigError(f"example {name!r}: field image: {reason}; export again")
    return str(path)


def _stored_picture(example: Example, folder: Path) -> str | None:
    """Copies the picture of an example into the folder and returns its name there."""
    if example.image is None:
        return None
    if isinstance(example.image, str | Path):
        try:
            data, ending = Path(example.image).read_bytes(), Path(example.image).suffix
        except OSError as error:
            message = f"example {example.id!r}: field image: {str(example.image)!r} cannot be read: {error.strerror}"
            raise ConfigError(message) from None
    else:
        _as_pil(example.image).save(buffer := io.BytesIO(), "PNG")
        data, ending = buffer.getvalue(), ".png"
    path = folder / IMAGES / f"{hashlib.sha256(data).hexdigest()[:16]}{ending}"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return f"{IMAGES}/{path.name}"


def _as_json(example: Example, folder: Path) -> dict[str, Any]:
    return {
        "id": example.id,
        "question": example.question,
        "answer": example.answer,
        "image": _stored_picture(example, folder),
        "clusters": dict(example.clusters),
    }


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _hashes(policy: bytes, data: bytes, trained: Trained) -> dict[str, str]:
    """Hashes all that a folder of a selector holds, by part."""
    parts = {
        "policy": policy,
        "data": data,
        "embedder": _canonical(trained.embedder),
        "template": _canonical(trained.template),
        "settings": _canonical([trained.shots, trained.order, trained.pool_size, trained.task_model]),
    }
    return {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
