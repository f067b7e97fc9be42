"""An image-text model that answers from demonstrations with pictures: any `AutoModelForImageTextToText` with its
processor.

Answers are scored by their token ids, from the cache of a prompt that is forwarded once, pictures included. Prompts of
the same number of tokens go together, so that nothing is padded before an answer; the first prompt is also forwarded
whole, and a family whose cache does not give the same numbers is served by whole passes from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor

from groupwise.causal_lm.loading import without_progress_bars
from groupwise.config import ConfigError
from groupwise.config.files import check_file
from groupwise.domain.selection.example import Example, Query
from groupwise.domain.selection.task_model.answer_tokens import Answers
from groupwise.domain.selection.task_model.causal_lm import render_chat
from groupwise.domain.selection.task_model.pretrained_config import ImageText
from groupwise.domain.selection.task_model.template import ChatTemplate, Template
from groupwise.learner.hashing import hash_weights

Row = tuple[Query, Sequence[Example]]
Asked = tuple[int, list[int]]
"""An answer: the place of its row, and its token ids."""


def open_model(config: ImageText, device: str | torch.device = "cpu") -> ImageTextTaskModel:
    """Loads the folder or hub id of `config`; safetensors only.

    Raises:
        ConfigError: it cannot be loaded, or its processor needs a package that is not installed.
    """
    dtype = "auto" if config.dtype == "auto" else getattr(torch, config.dtype)
    revision = config.revision or "main"
    try:
        with without_progress_bars():
            processor: Any = AutoProcessor.from_pretrained(config.path, revision=revision, trust_remote_code=False)
            model: Any = AutoModelForImageTextToText.from_pretrained(
                config.path, dtype=dtype, revision=revision, use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        if "torchvision" in str(error).lower():
            raise ConfigError(
                f"task_model.path = {config.path!r}: its processor needs torchvision, which Groupwise does not install;"
                " pip install torchvision, or use a model with a LLaVA-type processor"
            ) from error
        raise ConfigError(
            f"task_model.path = {config.path!r}: transformers cannot load an image-text model from it: {first}"
        ) from error
    return ImageTextTaskModel(
        model.to(device).eval(),
        processor,
        config.template,
        max_new_tokens=config.max_new_tokens,
        batch_size=config.batch_size,
    )


@final
class ImageTextTaskModel:
    """A frozen image-text model behind a template; see `groupwise.domain.selection.task_model.base.TaskModel`.

    `score = sum_t log p(answer_t | pictures, prompt, answer_<t)`, the answer's ids appended to the processor's.

    Args:
        model: of transformers, loaded by `AutoModelForImageTextToText`.
        processor: its processor, with a tokenizer and an image processor.
        template: how a prompt is written; its `question` holds `{image}`.
        max_new_tokens: longest generated answer.
        batch_size: prompts of a forward pass.

    Raises:
        ConfigError: a template without `{image}`, a chat template that the processor lacks, or a processor without an
            image token.
    """

    def __init__(
        self, model: Any, processor: Any, template: Template, *, max_new_tokens: int = 16, batch_size: int = 8
    ) -> None:
        self.template, self.max_new_tokens, self.batch_size = template, max_new_tokens, batch_size
        self._model, self._processor, self._tokenizer = model, processor, processor.tokenizer
        self._answers = Answers(self._tokenizer, template)
        self._fingerprint: str | None = None
        self._from_cache: bool | None = None
        if not template.num_images:
            raise ConfigError(
                f"template.question = {template.question!r} shows no picture; write {{image}} where it stands, or"
                " task_model.kind = 'causal_lm'"
            )
        if isinstance(template, ChatTemplate) and not getattr(processor, "chat_template", None):
            raise ConfigError(
                "template.kind = 'chat', but the processor has no chat template; write template.kind = 'text'"
            )
        self._image_token = getattr(processor, "image_token", None)
        if not isinstance(template, ChatTemplate) and self._image_token is None:
            raise ConfigError(f"{type(processor).__name__} names no image token; write template.kind = 'chat'")

    @torch.no_grad()
    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """`log P(answer | query, demos in this order)` in nats, one list a query.

        Args:
            queries: Q of them, each with an image.
            demos: Q lists of demonstrations in the order in which they are shown, each with an image.
            answers: Q lists of answers.

        Raises:
            ConfigError: an image that is missing, a prompt longer than the model's context, or an answer that becomes
                no token; with the query's id.
        """
        wanted = [
            [self._answers.ids(answer, query.id) for answer in own] for query, own in zip(queries, answers, strict=True)
        ]
        found: list[list[float]] = [[] for _ in queries]
        rows = list(zip(queries, demos, strict=True))
        for batch in self._batches(rows, [max(map(len, own), default=0) for own in wanted]):
            asked = [(place, ids) for place, row in enumerate(batch) for ids in wanted[row]]
            for (place, _), value in zip(
                asked, self._log_probs([rows[row] for row in batch], asked) if asked else [], strict=True
            ):
                found[batch[place]].append(value)
        return found

    @torch.no_grad()
    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """The greedy answer to each query, up to the template's stop text, the end of the turn or `max_new_tokens`.

        Args:
            queries: Q of them.
            demos: Q lists of demonstrations.

        Raises:
            ConfigError: as `score`.
        """
        found = [""] * len(queries)
        # Rows of a batch are equally long, so that any token serves as padding; without one transformers says so at
        # every call.
        pad = next(
            value for value in (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id, 0) if value is not None
        )
        rows = list(zip(queries, demos, strict=True))
        for batch in self._batches(rows, [self.max_new_tokens] * len(rows)):
            inputs = self._inputs([rows[row] for row in batch])
            written = self._model.generate(
                **inputs, max_new_tokens=self.max_new_tokens, do_sample=False, pad_token_id=pad
            )
            for row, ids in zip(batch, written[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
                found[row] = self._answers.text(ids)
        return found

    def fingerprint(self) -> str:
        """A hash of the weights, the tokenizer, how images are prepared, the template and `max_new_tokens`."""
        if self._fingerprint is None:
            images = self._processor.image_processor.to_json_string()
            found = hashlib.sha256(hash_weights(self._model).encode())
            found.update(f"{self._answers.description}{images}{self._model.config.to_json_string()}".encode())
            template = getattr(self._processor, "chat_template", None)
            found.update(f"{template}{self.template.model_dump_json()}{self.max_new_tokens}".encode())
            self._fingerprint = found.hexdigest()[:32]
        return self._fingerprint

    def _batches(self, rows: Sequence[Row], more: Sequence[int]) -> Iterator[list[int]]:
        """Places of rows with as many demonstrations and tokens as each other, `batch_size` at most."""
        alike: dict[tuple[int, int], list[int]] = {}
        for place, (query, demos) in enumerate(rows):
            length = self._inputs([(query, demos)])["input_ids"].shape[1]
            self._check_length(query, demos, length + more[place])
            alike.setdefault((len(demos), length), []).append(place)
        for places in alike.values():
            for start in range(0, len(places), self.batch_size):
                yield places[start : start + self.batch_size]

    def _inputs(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """What the model takes, of rows whose prompts are equally long."""
        texts, images = [self._text(*row) for row in rows], [self._images(*row) for row in rows]
        found = dict(self._processor(text=texts, images=images, return_tensors="pt"))
        return {
            name: value.to(
                device=self._model.device, dtype=self._model.dtype if value.is_floating_point() else value.dtype
            )
            for name, value in found.items()
        }

    def _log_probs(self, rows: Sequence[Row], asked: list[Asked]) -> list[float]:
        """Of answers after the prompts of rows that are equally long. Where all are of one token, the prompt alone is
        forwarded, by any family.
        """
        if all(len(ids) == 1 for _, ids in asked):
            return self._cached(rows, asked)
        if self._from_cache is None:
            whole = self._whole(rows, asked)
            try:
                cached = self._cached(rows, asked)
            except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
                cached = []
            tolerance = 0.05 if self._model.dtype.itemsize < 4 else 1e-3
            self._from_cache = bool(cached) and bool(np.allclose(cached, whole, rtol=tolerance, atol=tolerance))
            return cached if self._from_cache else whole
        return self._cached(rows, asked) if self._from_cache else self._whole(rows, asked)

    def _cached(self, rows: Sequence[Row], asked: list[Asked]) -> list[float]:
        """The prompts once, then every answer from its prompt's keys and values; answers are padded on the right, where
        nothing looks.
        """
        inputs = self._inputs(rows)
        prompt = self._model(**inputs, use_cache=True, logits_to_keep=1)
        places = torch.tensor([place for place, _ in asked], device=self._model.device)
        ids, there = _padded([ids for _, ids in asked], self._model.device)
        logits = prompt.logits[:, -1:][places]
        if ids.shape[1] > 1:
            cache = prompt.past_key_values
            cache.batch_select_indices(places)
            seen = inputs["attention_mask"][places]
            mask = torch.cat([seen, torch.ones_like(ids[:, :-1])], 1)
            rest = self._model(input_ids=ids[:, :-1], attention_mask=mask, past_key_values=cache, use_cache=True)
            logits = torch.cat([logits, rest.logits], 1)
        return _summed(logits, ids, there)

    def _whole(self, rows: Sequence[Row], asked: list[Asked]) -> list[float]:
        """Every answer with its prompt and pictures in a pass of its own."""
        found = []
        for place, ids in asked:
            inputs = self._inputs([rows[place]])
            shape = inputs["input_ids"].shape
            answer = torch.tensor([ids], device=self._model.device)
            for name, value in inputs.items():
                if value.shape == shape:  # one entry a token; an answer's tokens are text, which is type 0
                    more = (
                        answer
                        if name == "input_ids"
                        else torch.ones_like(answer)
                        if name == "attention_mask"
                        else torch.zeros_like(answer)
                    )
                    inputs[name] = torch.cat([value, more.to(value.dtype)], 1)
            logits = self._model(**inputs, use_cache=False).logits[:, shape[1] - 1 : -1]
            found += _summed(logits, answer, torch.ones_like(answer, dtype=torch.bool))
        return found

    def _text(self, query: Query, demos: Sequence[Example]) -> str:
        pairs = [(demo.question, demo.answer) for demo in demos]
        if isinstance(self.template, ChatTemplate):
            return render_chat(
                self._processor, self.template.messages(query.question, pairs), self.template.template_arguments
            )
        return self.template.prompt(query.question, pairs, image=str(self._image_token))

    def _images(self, query: Query, demos: Sequence[Example]) -> list[Any]:
        return [
            *(_picture(demo.image, f"example {demo.id!r}") for demo in demos),
            _picture(query.image, f"query {query.id!r}"),
        ]

    def _check_length(self, query: Query, demos: Sequence[Example], num_tokens: int) -> None:
        config = self._model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        if limit is not None and num_tokens > limit:
            raise ConfigError(
                f"query {query.id!r} with {len(demos)} demonstrations and the answer takes {num_tokens} tokens,"
                f" pictures included, above the model's context of {limit}; show fewer demonstrations, or use a model"
                " with a longer context"
            )


def _padded(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """`[N, T]` ids and which of them are there."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows], device=device)
    return ids, torch.arange(width, device=device) < torch.tensor([len(row) for row in rows], device=device).unsqueeze(
        1
    )


def _summed(logits: Tensor, ids: Tensor, there: Tensor) -> list[float]:
    """`[N, T, V]` logits of `[N, T]` tokens as log-probabilities of the rows."""
    log_p = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
    chosen = log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1).double()
    return torch.where(there, chosen, 0.0).sum(1).tolist()


def _picture(image: Any, what: str) -> Any:
    """A PIL image in colour.

    Raises:
        ConfigError: none is there, or it cannot be read.
    """
    from PIL import Image

    if image is None:
        raise ConfigError(
            f"{what}: field image is missing, and the template shows one; give a uint8 array [H, W] or [H, W, 3], or"
            " the path of a file"
        )
    if isinstance(image, str | Path):
        try:
            check_file(Path(image))
            return Image.open(image).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ConfigError(f"{what}: field image: {str(image)!r} cannot be read: {error}") from error
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise ConfigError(
            f"{what}: field image is {pixels.dtype} {list(pixels.shape)}; give a uint8 array [H, W] or [H, W, 3], or"
            " the path of a file"
        )
    return Image.fromarray(pixels).convert("RGB")
