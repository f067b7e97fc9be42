"""Task models from a folder or hub id, as configuration. Imports neither torch nor transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config, keys_under
from groupwise.config.errors import PerStep, Positive
from groupwise_selection.task_model.template import Template, TextTemplate

if TYPE_CHECKING:
    from groupwise_selection.task_model.base import TaskModel


class _Pretrained(Config):
    """The settings of both kinds: the model's place, the length of its answers, and their cache."""

    path: Annotated[str, Field(min_length=1)]
    """A local folder or a hub id."""
    revision: str | None = None
    """A branch, tag or commit of a hub id."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Dtype of the weights; `auto` takes the file's."""
    max_new_tokens: Positive = 16
    """Highest number of tokens of a generated answer."""
    cache: bool = True
    """Keep answers between runs. Prompts then go through the model one by one, so that no number depends on the content
    of the cache.
    """

    def _with_cache(self, model: TaskModel, computed: str) -> TaskModel:
        """Adds the cache of answers to an opened model; `computed` describes its device and attention."""
        from groupwise_selection.task_model.cache import CachedTaskModel, machine

        return CachedTaskModel(model, machine=f"{machine()}, {computed}") if self.cache else model


@final
class CausalLM(_Pretrained):
    """A causal language model of transformers, frozen; safetensors only.

    Example:
        >>> CausalLM(path="models/Qwen2.5-0.5B").template.kind
        'text'
    """

    kind: Literal["causal_lm"] = "causal_lm"
    template: Template = TextTemplate()
    """The template of the prompts."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    """Attention implementation of transformers; unset takes its default."""
    batch_tokens: Positive = 16384
    """Tokens of a forward pass, padding included, where prompts go together (`cache = false`)."""

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the model, with its answers of earlier runs.

        Raises:
            ConfigError: the folder cannot be loaded, or does not fit the template.
        """
        from groupwise.causal_lm.config import CausalLMConfig
        from groupwise.causal_lm.loading import load
        from groupwise_selection.task_model.causal_lm import CausalLMTaskModel

        settings = CausalLMConfig(path=self.path, dtype=self.dtype, attention=self.attention, revision=self.revision)
        with keys_under("domain.task_model"):
            loaded = load(settings, device)
        model = CausalLMTaskModel(
            loaded, self.template, max_new_tokens=self.max_new_tokens, batch_tokens=self.batch_tokens
        )
        return self._with_cache(model, f"{device}, {self.attention}")


@final
class ImageText(_Pretrained):
    """An image-text model of transformers, frozen; safetensors only. A processor that needs torchvision for
    videos alone is opened without it; the error of any other says which build to install.

    Example:
        >>> ImageText(path="models/llava").template.question
        '{image}\\nQ: {question}\\nA:'
    """

    kind: Literal["image_text"] = "image_text"
    template: Template = TextTemplate(question="{image}\nQ: {question}\nA:")
    """The template of the prompts; its `question` holds `{image}`."""
    batch_size: PerStep = 8
    """Prompts of a forward pass, where they go together (`cache = false`)."""

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the model, with its answers of earlier runs.

        Raises:
            ConfigError: the folder cannot be loaded, its processor needs a package that is absent, or it does not fit
                the template.
        """
        from groupwise_selection.task_model.image_text import open_model

        return self._with_cache(open_model(self, device), device)
