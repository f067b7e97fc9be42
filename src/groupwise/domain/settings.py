"""The configuration of any domain, as an experiment uses it. Imports no torch."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from groupwise.config import Config, ConfigError
from groupwise.domain.exported import Card, DomainObjects, Export
from groupwise.extras import require
from groupwise.schedule import Schedule

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.streams import Streams


@dataclass(frozen=True)
class CausalLm:
    """A causal language model, as far as the memory of a step depends on it.

    Args:
        config: the configuration of transformers.
        max_new_tokens: longest completion, tokens.
        weight_bytes: bytes of a weight.
        lora: the adapter that is trained, a `groupwise.causal_lm.config.LoraConfig`; unset trains all weights.
        has_weights: whether there are weights, and not a configuration alone.
        served: whether servers sample.
        server_share: share of a device's memory that a server takes which the run starts on it; 0 where none is.
        server_sleeps: whether that server gives its memory back while nothing is sampled.
    """

    config: Any
    max_new_tokens: int
    weight_bytes: int = 4
    lora: Any = None
    has_weights: bool = True
    served: bool = False
    server_share: float = 0.0
    server_sleeps: bool = False


class DomainConfig(Config):
    """The configuration of a domain: the table `[domain]` of an experiment.

    Args:
        kind: the kind's name; a subclass states it as a `Literal` with a default.
        sampling_schedule: schedules over the steps of a stage for settings of the sampler, by name; the values used are
            stored with the rollouts.
    """

    whole_run: ClassVar[frozenset[str]] = frozenset()
    """Keys that no stage may change."""

    extra: ClassVar[str] = ""
    """The extra of this package that the domain needs; empty where it needs none."""

    sample_hint: ClassVar[str] = "ask it something"
    """The words by which the end of a run recommends `groupwise sample`."""

    spreads: ClassVar[bool] = True
    """Whether weights can be spread over processes (`train.sharding`), as far as is known before they are loaded."""

    kind: str
    sampling_schedule: Mapping[str, Schedule] = Field(default_factory=dict)

    def require_extra(self) -> None:
        """Refuses a domain whose extra is not installed, before anything of it is loaded.

        Raises:
            ConfigError: naming the kind, the packages that are missing and what installs them.
        """
        if self.extra:
            require(self.extra, f"domain.kind = {self.kind!r}")

    def open(self, *, streams: Streams, device: str = "cpu") -> Domain:
        """Opens the domain: data read, weights made or loaded.

        Args:
            streams: the random streams of the run; fresh weights are drawn from it.
            device: where the module lives.

        Raises:
            ConfigError: data or weights that cannot be used.
        """
        raise NotImplementedError

    def open_to_spread(self, *, streams: Streams, device: str = "cpu") -> Domain:
        """Opens the domain of a run with `train.sharding = "full"`, in which weights are spread over processes. Where
        the domain can, it spreads them first, so that no device and no process has to hold all of them.

        Args:
            streams, device: see `open`.

        Raises:
            ConfigError: as `open`.
        """
        return self.open(streams=streams, device=device)

    def adapt(self, domain: Domain) -> Domain:
        """Adapts an open domain to these settings, sharing its module, for a stage that changes some.

        Args:
            domain: as the run opened it.

        Raises:
            ConfigError: a setting differs that belongs to the whole run.
        """
        return domain.adapted(self)

    def to_sample(self, *, data: bool) -> Self:
        """Returns the settings that `groupwise sample` opens, without the parts that writing an answer does not need.

        Args:
            data: whether training prompts are asked.
        """
        return self

    @classmethod
    def of_folder(cls, folder: Path, *, raw: bool = False) -> Self | None:
        """Returns the settings that ask a model folder by itself, without prompts and rewards; None where the domain
        cannot do so, or where the folder holds no model of it.

        Args:
            folder: a folder of any kind.
            raw: whether a text is asked as it is, where the domain would write something around it.
        """
        return None

    def asked_like(self, prompt: Any) -> Self:
        """Returns the settings under which a typed text is asked in the form of a recorded prompt.

        Args:
            prompt: the column `prompt` of a member that a run recorded.
        """
        return self

    def asked_raw(self) -> Self:
        """Returns the settings under which a typed text is asked as it is."""
        return self

    def costs(self, *, streams: Streams) -> CausalLm | None:
        """Describes the model to `groupwise estimate`; None of a domain whose policy is not a causal language model.

        Args:
            streams: the random streams of the run; a model that is built for its data draws its weights from it.
        """
        return None

    @classmethod
    def export(cls, request: Export) -> Card:
        """Writes a trained model as others load it. By default a copy of what `Domain.save` wrote.

        Args:
            request: the model, and where to write.

        Returns:
            the text of its card.

        Raises:
            ConfigError: solved examples are asked for, and the domain exports none.
        """
        if request.examples is not None:
            raise ConfigError(
                f"--examples {request.examples}: the {request.settings.get('kind')} domain exports no examples; leave"
                " it out"
            )
        shutil.copytree(request.model, request.folder, dirs_exist_ok=True)
        return cls.card(request)

    @classmethod
    def card(cls, request: Export) -> Card:
        """Describes a copied model on its card.

        Args:
            request: the export, its folder written.
        """
        return Card(
            loading=f"groupwise evaluate {shlex.quote(str(request.out))} --experiment {shlex.quote(str(request.run))}"
        )

    @classmethod
    def on_model(cls, folder: str) -> dict[str, Any]:
        """Returns the keys that put the domain on a folder that `Domain.save` wrote.

        Args:
            folder: the model's folder.
        """
        return {"model": {"kind": "pretrained", "path": folder}}

    @classmethod
    def on_prompts(cls, path: str) -> dict[str, Any]:
        """Returns the keys that make the domain train on the rows of a file, which `groupwise.config.read_rows` reads.

        Args:
            path: the path of the file.

        Raises:
            ConfigError: the domain reads no file of rows.
        """
        raise ConfigError(
            f"--prompts {path}: the {cls.model_fields['kind'].default or 'this'} domain reads no file of prompts; say"
            " in its keys what it reads"
        )

    @classmethod
    def on_objects(cls, objects: DomainObjects) -> dict[str, Any]:
        """Returns the keys that put the domain on Python objects, for `groupwise.train`. By default a model folder and
        rewards are taken, where the configuration has the keys.

        Args:
            objects: the objects that the program handed over.

        Raises:
            ConfigError: the domain has no use for one of them.
        """
        kind = cls.model_fields["kind"].default or "this"
        for argument in ("data", "eval_data"):
            if getattr(objects, argument) is not None:
                raise ConfigError(
                    f"{argument}: the {kind} domain reads its data itself and takes none; leave the argument out, and"
                    " say in its keys what it reads"
                )
        if objects.tools is not None:
            raise ConfigError(f"tools: the {kind} domain calls none; leave the argument out")
        table: dict[str, Any] = {}
        if isinstance(objects.model, tuple):
            raise ConfigError(
                f"model: the {kind} domain takes no pair of model and tokenizer; give the folder of a model"
            )
        if objects.model is not None:
            table |= cls.on_model(objects.model)
        if objects.rewards is not None:
            if "rewards" not in cls.model_fields:
                raise ConfigError(
                    f"rewards: the {kind} domain computes its rewards in its method reward; leave the argument out"
                )
            table["rewards"] = dict(objects.rewards)
        return table
