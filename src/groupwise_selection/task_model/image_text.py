"""An image-text model that answers from demonstrations with pictures: any `AutoModelForImageTextToText` with its
processor.

Answers are scored by their token ids, from the cache of a prompt that is forwarded once, pictures included. Prompts of
the same number of tokens go together, so that nothing is padded before an answer. The first answer is also forwarded
without a cache: a model whose cache gives other numbers is then always forwarded without it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from transformers import (
    PROCESSOR_MAPPING,
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
)

from groupwise.causal_lm.loading import without_progress_bars
from groupwise.causal_lm.prompt import added_tokens, render_chat
from groupwise.config import ConfigError
from groupwise.config.files import check_file
from groupwise.extras import torchvision_command
from groupwise.learner.copy import hash_weights
from groupwise_selection.example import Example, Query
from groupwise_selection.task_model.cache import Answers
from groupwise_selection.task_model.config import ImageText
from groupwise_selection.task_model.template import ChatTemplate, Template

log = logging.getLogger("groupwise")

Row = tuple[Query, Sequence[Example]]
RowAnswer = tuple[int, list[int]]
"""An answer of a row: the place of the row, and the answer's token ids."""


def open_model(config: ImageText, device: str | torch.device = "cpu") -> ImageTextTaskModel:
    """Loads the folder or hub id of `config`; safetensors only.

    Raises:
        ConfigError: the model cannot be loaded, or its processor needs torchvision for pictures.
    """
    dtype = "auto" if config.dtype == "auto" else getattr(torch, config.dtype)
    revision = config.revision or "main"
    try:
        with without_progress_bars():
            processor: Any = open_processor(config.path, revision)
            model: Any = AutoModelForImageTextToText.from_pretrained(
                config.path, dtype=dtype, revision=revision, use_safetensors=True, trust_remote_code=False
            )
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ConfigError(
            f"task_model.path = {config.path!r}: transformers cannot load an image-text model from it: {reason}"
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
    """A frozen image-text model with a template; see `groupwise_selection.task_model.base.TaskModel`.

    `score = sum_t log p(answer_t | pictures, prompt, answer_<t)`, the answer's ids appended to the processor's.

    Args:
        model: the model of transformers, loaded by `AutoModelForImageTextToText`.
        processor: its processor, with a tokenizer and an image processor.
        template: template of the prompts; its `question` holds `{image}`.
        max_new_tokens: highest number of tokens of a generated answer.
        batch_size: prompts of a forward pass.

    Raises:
        ConfigError: the template has no `{image}`, or the processor lacks the chat template or an image token.
    """

    def __init__(
        self, model: Any, processor: Any, template: Template, *, max_new_tokens: int = 16, batch_size: int = 8
    ) -> None:
        self.template, self.max_new_tokens, self.batch_size = template, max_new_tokens, batch_size
        self._model, self._processor, self._tokenizer = model, processor, processor.tokenizer
        self._answers = Answers(self._tokenizer, template)
        self._num_appended = len(added_tokens(self._tokenizer)[1])
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
        """Computes `log P(answer | query, demos in this order)` in nats, one list a query.

        Args:
            queries: `Q` queries, each with an image.
            demos: `Q` lists of demonstrations in the order of the prompt, each with an image.
            answers: `Q` lists of answers.

        Raises:
            ConfigError: an image is missing, a prompt is longer than the model's context, or an answer becomes no
                token; the message names the query.
        """
        answer_ids = [
            [self._answers.ids(answer, query.id) for answer in row_answers]
            for query, row_answers in zip(queries, answers, strict=True)
        ]
        scores: list[list[float]] = [[] for _ in queries]
        rows = list(zip(queries, demos, strict=True))
        for batch in self._batches(rows, [max(map(len, row_answers), default=0) for row_answers in answer_ids]):
            batch_answers = [(place, ids) for place, row in enumerate(batch) for ids in answer_ids[row]]
            for (place, _), value in zip(
                batch_answers,
                self._log_probs([rows[row] for row in batch], batch_answers) if batch_answers else [],
                strict=True,
            ):
                scores[batch[place]].append(value)
        return scores

    @torch.no_grad()
    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """Generates the greedy answer to each query, up to the template's stop text, the end of the turn or
        `max_new_tokens`.

        Args:
            queries: `Q` queries, each with an image.
            demos: `Q` lists of demonstrations in the order of the prompt, each with an image.

        Raises:
            ConfigError: as `score`.
        """
        answers = [""] * len(queries)
        # Rows of a batch are equally long and need no padding, but transformers warns at every call without a padding
        # token.
        pad = next(
            value for value in (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id, 0) if value is not None
        )
        rows = list(zip(queries, demos, strict=True))
        for batch in self._batches(rows, [self.max_new_tokens] * len(rows)):
            inputs = self._inputs([rows[row] for row in batch])
            token_ids = self._model.generate(
                **inputs, max_new_tokens=self.max_new_tokens, do_sample=False, pad_token_id=pad
            )
            for row, ids in zip(batch, token_ids[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
                answers[row] = self._answers.text(ids)
        return answers

    def fingerprint(self) -> str:
        """Returns a hash of the weights, the tokenizer, the image processor, the template and `max_new_tokens`."""
        if self._fingerprint is None:
            images = self._processor.image_processor.to_json_string()
            hasher = hashlib.sha256(hash_weights(self._model).encode())
            hasher.update(f"{self._answers.description}{images}{self._model.config.to_json_string()}".encode())
            template = getattr(self._processor, "chat_template", None)
            hasher.update(f"{template}{self.template.model_dump_json()}{self.max_new_tokens}".encode())
            self._fingerprint = hasher.hexdigest()[:32]
        return self._fingerprint

    def _batches(self, rows: Sequence[Row], num_new_tokens: Sequence[int]) -> Iterator[list[int]]:
        """Yields places of rows with equal numbers of demonstrations and of tokens, `batch_size` at most."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for place, (query, demos) in enumerate(rows):
            length = self._inputs([(query, demos)])["input_ids"].shape[1]
            self._check_length(query, demos, length + num_new_tokens[place])
            by_shape.setdefault((len(demos), length), []).append(place)
        for places in by_shape.values():
            for start in range(0, len(places), self.batch_size):
                yield places[start : start + self.batch_size]

    def _inputs(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Returns the model's inputs for rows whose prompts are equally long."""
        texts, images = [self._text(*row) for row in rows], [self._images(*row) for row in rows]
        begins = texts[0].startswith(self._tokenizer.bos_token or "\0")
        settings = {"add_special_tokens": False} if begins else {}
        inputs = dict(self._processor(text=texts, images=images, return_tensors="pt", **settings))
        # Drop the tokens that the tokenizer appends: they would be between a prompt and its answer.
        shape = inputs["input_ids"].shape
        length = shape[1] - (0 if begins else self._num_appended)
        return {
            name: (value[:, :length] if value.shape == shape else value).to(
                device=self._model.device, dtype=self._model.dtype if value.is_floating_point() else value.dtype
            )
            for name, value in inputs.items()
        }

    def _log_probs(self, rows: Sequence[Row], answers: list[RowAnswer]) -> list[float]:
        """Computes log-probs of answers after the prompts of rows that are equally long. Where all answers are of one
        token, only the prompts are forwarded, which needs no cache.
        """
        if all(len(ids) == 1 for _, ids in answers):
            return self._cached(rows, answers)
        if self._from_cache is None:
            self._from_cache = self._continues(rows, next(answer for answer in answers if len(answer[1]) > 1))
        return self._cached(rows, answers) if self._from_cache else self._whole(rows, answers)

    def _continues(self, rows: Sequence[Row], answer: RowAnswer) -> bool:
        """Tests with one answer that the cache gives what a pass without it gives; says so once where it does not."""
        (expected,) = self._whole(rows, [answer])
        # Families differ in what their cache is and in how they refuse it; any refusal costs time and no truth.
        try:
            (found,) = self._cached(rows, [answer])
            tolerance = 0.05 if self._model.dtype.itemsize < 4 else 1e-3
            reason = f"it gives {found:.6g} nats in place of {expected:.6g}"
            same = bool(np.isclose(found, expected, rtol=tolerance, atol=tolerance))
        except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
            reason, same = f"{type(error).__name__}: {error}", False
        if not same:
            log.warning(
                "%s cannot go on from its cache (%s): every answer is forwarded with its whole prompt, which is many"
                " times slower",
                type(self._model).__name__,
                reason.partition("\n")[0],
            )
        return same

    def _cached(self, rows: Sequence[Row], answers: list[RowAnswer]) -> list[float]:
        """Forwards the prompts once, then every answer from its prompt's keys and values; answers are padded on the
        right, where no token attends to the padding.
        """
        inputs = self._inputs(rows)
        prompt = self._model(**inputs, use_cache=True, logits_to_keep=1)
        # Qwen-VL counts a picture as fewer positions than tokens. The model keeps by how many, for its last call alone.
        deltas = getattr(getattr(self._model, "model", None), "rope_deltas", None)
        places = torch.tensor([place for place, _ in answers], device=self._model.device)
        ids, token_mask = _padded([ids for _, ids in answers], self._model.device)
        logits = prompt.logits[:, -1:][places]
        if ids.shape[1] > 1:
            cache = prompt.past_key_values
            cache.batch_select_indices(places)
            prompt_mask = inputs["attention_mask"][places]
            mask = torch.cat([prompt_mask, torch.ones_like(ids[:, :-1])], 1)
            positions = {}
            if deltas is not None:
                steps = torch.arange(ids.shape[1] - 1, device=ids.device)
                positions["position_ids"] = prompt_mask.shape[1] + deltas[places] + steps
            continuation = self._model(
                input_ids=ids[:, :-1], attention_mask=mask, past_key_values=cache, use_cache=True, **positions
            )
            logits = torch.cat([logits, continuation.logits], 1)
        return _summed(logits, ids, token_mask)

    def _whole(self, rows: Sequence[Row], answers: list[RowAnswer]) -> list[float]:
        """Forwards every answer with its prompt and pictures in a separate pass."""
        log_probs = []
        for place, ids in answers:
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
            log_probs += _summed(logits, answer, torch.ones_like(answer, dtype=torch.bool))
        return log_probs

    def _text(self, query: Query, demos: Sequence[Example]) -> str:
        pairs = [(demo.question, demo.answer) for demo in demos]
        if isinstance(self.template, ChatTemplate):
            return render_chat(
                self._processor, self.template.messages(query.question, pairs), self.template.template_arguments
            )
        return self.template.prompt(query.question, pairs, image=str(self._image_token))

    def _images(self, query: Query, demos: Sequence[Example]) -> list[Any]:
        return [
            *(as_picture(demo.image, f"example {demo.id!r}") for demo in demos),
            as_picture(query.image, f"query {query.id!r}"),
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
    """Pads rows to `[N, T]` ids, with a mask that is true for tokens of a row."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows], device=device)
    return ids, torch.arange(width, device=device) < torch.tensor([len(row) for row in rows], device=device).unsqueeze(
        1
    )


def _summed(logits: Tensor, ids: Tensor, token_mask: Tensor) -> list[float]:
    """Sums the log-probs of `[N, T]` tokens over each row, from logits `[N, T, V]`."""
    log_p = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
    chosen = log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1).double()
    return torch.where(token_mask, chosen, 0.0).sum(1).tolist()


def as_picture(image: Any, subject: str) -> Any:
    """Opens a picture as a PIL image in colour.

    Raises:
        ConfigError: the image is missing, or cannot be read.
    """
    from PIL import Image

    if image is None:
        raise ConfigError(
            f"{subject}: field image is missing, and the template shows one; give a uint8 array [H, W] or [H, W, 3], or"
            " the path of a file"
        )
    if isinstance(image, str | Path):
        try:
            check_file(Path(image))
            return Image.open(image).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ConfigError(f"{subject}: field image: {str(image)!r} cannot be read: {error}") from error
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise ConfigError(
            f"{subject}: field image is {pixels.dtype} {list(pixels.shape)}; give a uint8 array [H, W] or [H, W, 3], or"
            " the path of a file"
        )
    return Image.fromarray(pixels).convert("RGB")


# The processor. Some need torchvision for videos alone; they open without it, since only pictures are shown here.

_VIDEOS = "video_processor"


def open_processor(path: str, revision: str) -> Any:
    """Loads the processor of a folder or hub id.

    Raises:
        ConfigError: it needs torchvision for pictures too.
    """
    arguments = {"revision": revision, "trust_remote_code": False}
    try:
        return AutoProcessor.from_pretrained(path, **arguments)
    except (ImportError, ValueError, RuntimeError) as error:
        if "torchvision" not in str(error).lower():
            raise
    try:
        return _without_videos(path, arguments)
    except (ImportError, ValueError, RuntimeError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(
            f"task_model.path = {path!r}: its processor needs torchvision, of a build that fits torch; write"
            f" {torchvision_command()}, or use a model with a LLaVA-type processor"
        ) from error


def _without_videos(path: str, arguments: dict[str, Any]) -> Any:
    whole: Any = PROCESSOR_MAPPING[type(AutoConfig.from_pretrained(path, **arguments))]

    def check(self: Any, part: str, value: Any) -> Any:
        return None if part == _VIDEOS else whole.check_argument_for_proper_class(self, part, value)

    parts = {"tokenizer": AutoTokenizer, "image_processor": AutoImageProcessor, _VIDEOS: None}
    loaded = [
        None if (loader := parts[part]) is None else loader.from_pretrained(path, **arguments)
        for part in whole.get_attributes()
    ]
    settings, _ = whole.get_processor_dict(path, **arguments)
    # The class inherits the signature, from which transformers takes the order of the parts.
    pictures_only: Any = type(whole.__name__, (whole,), {"check_argument_for_proper_class": check})
    return pictures_only.from_args_and_dict(loaded, settings)
