"""Task models from a folder or hub id, as configuration. Imports neither torch nor transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.domain.selection.task_model.template import Template, TextTemplate

if TYPE_CHECKING:
    from groupwise.domain.selection.task_model.base import TaskModel

Positive = Annotated[int, Field(ge=1)]


@final
class CausalLM(Config):
    """A causal language model of transformers, frozen; safetensors only.

    Args:
        path: a local folder or a hub id.
        template: how demonstrations and the query become a prompt.
        dtype: dtype of the weights; `auto` takes the file's.
        attention: attention implementation of transformers; unset takes its default.
        revision: a branch, tag or commit of a hub id.
        max_new_tokens: longest answer it writes.
        batch_tokens: tokens of a forward pass, padding included.
        cache: keep what it answered between runs.

    Example:
        >>> CausalLM(path="models/Qwen2.5-0.5B").template.kind
        'text'
    """

    kind: Literal["causal_lm"] = "causal_lm"
    path: Annotated[str, Field(min_length=1)]
    template: Template = TextTemplate()
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    revision: str | None = None
    max_new_tokens: Positive = 16
    batch_tokens: Positive = 16384
    cache: bool = True

    def open(self, device: str = "cpu") -> TaskModel:
        """The model, with the answers it gave before.

        Raises:
            ConfigError: the folder cannot be loaded, or does not fit the template.
        """
        from groupwise.causal_lm.config import CausalLMConfig
        from groupwise.causal_lm.loading import load
        from groupwise.domain.selection.task_model.cache import CachedTaskModel
        from groupwise.domain.selection.task_model.causal_lm import CausalLMTaskModel

        loaded = load(CausalLMConfig(path=self.path, dtype=self.dtype, attention=self.attention, revision=self.revision), device)
        model = CausalLMTaskModel(loaded, self.template, max_new_tokens=self.max_new_tokens, batch_tokens=self.batch_tokens)
        return CachedTaskModel(model) if self.cache else model


@final
class ImageText(Config):
    """An image-text model of transformers, frozen; safetensors only. A LLaVA-type processor needs no torchvision; one that does says so.

    Args:
        path: a local folder or a hub id.
        template: how demonstrations and the query become a prompt; its `question` holds `{image}`.
        dtype: dtype of the weights; `auto` takes the file's.
        revision: a branch, tag or commit of a hub id.
        max_new_tokens: longest answer it writes.
        batch_size: prompts of a forward pass.
        cache: keep what it answered between runs.

    Example:
        >>> ImageText(path="models/llava").template.question
        '{image}\\nQ: {question}\\nA:'
    """

    kind: Literal["image_text"] = "image_text"
    path: Annotated[str, Field(min_length=1)]
    template: Template = TextTemplate(question="{image}\nQ: {question}\nA:")
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    revision: str | None = None
    max_new_tokens: Positive = 16
    batch_size: Positive = 8
    cache: bool = True

    def open(self, device: str = "cpu") -> TaskModel:
        """The model, with the answers it gave before.

        Raises:
            ConfigError: the folder cannot be loaded, its processor needs a package that is absent, or it does not fit the template.
        """
        from groupwise.domain.selection.task_model.cache import CachedTaskModel
        from groupwise.domain.selection.task_model.image_text import open_model

        model = open_model(self, device)
        return CachedTaskModel(model) if self.cache else model
