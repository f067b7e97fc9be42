"""What an experiment may ask of any domain's configuration. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from groupwise.config import Config
from groupwise.extras import require
from groupwise.schedule import Schedule

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.streams import Streams


class DomainConfig(Config):
    """The configuration of a domain: the table `[domain]` of an experiment.

    Args:
        kind: which domain; a subclass states it as a `Literal` with a default.
        sampling_schedule: schedules over the steps of a stage for settings of the sampler, by name; the values used are
            stored with the rollouts.
    """

    whole_run: ClassVar[frozenset[str]] = frozenset()
    """Keys that no stage may change."""

    only_sampled: ClassVar[frozenset[str]] = frozenset()
    """Keys that a stage that samples nothing does not train by: they may change, and a kept warm-up stays what it was.
    """

    extra: ClassVar[str] = ""
    """The extra of this package that the domain needs; empty where it needs none."""

    kind: str
    sampling_schedule: Mapping[str, Schedule] = Field(default_factory=dict)

    def require_extra(self) -> None:
        """Refuse a domain whose extra is not installed, before anything of it is loaded.

        Raises:
            ConfigError: naming the kind, the packages that are missing and what installs them.
        """
        if self.extra:
            require(self.extra, f"domain.kind = {self.kind!r}")

    def open(self, *, streams: Streams, device: str = "cpu") -> Domain:
        """The domain itself: data read, weights made or loaded.

        Args:
            streams: of the run; fresh weights are drawn from it.
            device: where the module lives.

        Raises:
            ConfigError: data or weights that cannot be used.
        """
        raise NotImplementedError

    def adapt(self, domain: Domain) -> Domain:
        """An open domain under these settings, sharing its module, for a stage that changes some.

        Args:
            domain: as the run opened it.

        Raises:
            ConfigError: a setting differs that belongs to the whole run.
        """
        return domain.adapted(self)

    def to_sample(self, *, data: bool) -> Self:
        """The settings that `groupwise sample` opens: with nothing in them that writing an answer does not need.

        Args:
            data: whether training prompts are asked for.
        """
        return self

    @classmethod
    def on_model(cls, folder: str) -> dict[str, Any]:
        """The keys that put the domain on a folder that `Domain.save` wrote.

        Args:
            folder: of the model.
        """
        return {"model": {"kind": "pretrained", "path": folder}}
