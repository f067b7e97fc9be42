"""The models that answer, as configuration, distinguished by `kind`. Imports neither torch nor transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config, keys_under
from groupwise.config.errors import Count, Length, PerStep, Positive, Seed, Width
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
    videos alone is opened without it; the error of any other states which build to install.

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


@final
class DigitRules(Config):
    """A small transformer trained here to answer digit-rule questions from demonstrations alone, and frozen; see
    `task_model.digit_rules`.

    Args:
        dimensions: principal components of an image that it reads; as many as the source's rules are made of.
        width: width of the layers.
        num_layers: number of transformer layers.
        num_heads: number of attention heads.
        num_steps: optimiser steps of its training.
        batch_size: episodes of a step.
        learning_rate: highest learning rate of its schedule.
        seed: seed of weights and episodes. It is not the run's seed: runs with different seeds are judged by the same
            model.
        cache: keep the trained model between runs.
    """

    MOST_DEMOS: ClassVar[int] = 8
    """The highest number of demonstrations in a prompt of the model."""

    kind: Literal["digit_rules"] = "digit_rules"
    dimensions: Annotated[int, Field(ge=2, le=16)] = 4
    width: Annotated[Width, Field(ge=4)] = 64
    num_layers: Length = 2
    num_heads: Width = 4
    num_steps: Count = 1500
    batch_size: PerStep = 128
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    seed: Seed = 0
    cache: bool = True

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the trained model, from the cache where it was trained before."""
        from groupwise_selection.task_model.digit_rules import open_model

        return open_model(self, device)


TEMPLATE = TextTemplate(question="{question}:", answer=" {answer}", separator="\n")


@final
class TicketLM(Config):
    """A causal language model that is trained here to send tickets as the solved ones before it were sent, saved as a
    folder, and loaded from there.

    Args:
        width: width of the layers.
        num_steps: optimiser steps of its training.
        batch_size: texts of a step, sixteen tickets each.
        learning_rate: highest learning rate of its schedule.
        seed: seed of weights and texts. It is not the run's seed: runs with different seeds are judged by the same
            model.

    Example:
        >>> TicketLM().width
        64
    """

    kind: Literal["ticket_lm"] = "ticket_lm"
    width: Annotated[Width, Field(ge=8, multiple_of=8)] = 64
    num_steps: Count = 600
    batch_size: PerStep = 32
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-3
    seed: Seed = 0

    @property
    def template(self) -> TextTemplate:
        """The template of the prompts: a solved ticket a line."""
        return TEMPLATE

    def open(self, device: str = "cpu") -> TaskModel:
        """Opens the trained model from its folder, without a cache of answers: computing them costs less."""
        from groupwise_selection.task_model.ticket_lm import open_model

        return open_model(self, device)


TaskModelConfig = Annotated[DigitRules | CausalLM | ImageText | TicketLM, Field(discriminator="kind")]
"""Any task model, distinguished by `kind`."""
