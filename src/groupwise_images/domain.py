"""The base of the image domains: one model for all stages, and an evaluation that processes share."""

from abc import abstractmethod
from typing import Any, Self

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Peers
from groupwise.reward import Rewards
from groupwise.streams import Streams


class ImageDomain(Domain):
    """A model that makes images, with its rewards."""

    takes_text = True
    density = True
    config: Any
    rewards: Rewards
    _streams: Streams

    def adapted(self, config: Any) -> Self:
        """Opens the same model under other settings, for a stage that changes them.

        Raises:
            ConfigError: the model itself differs.
        """
        if config.model != self.config.model:
            raise ConfigError("model: it belongs to the whole run and cannot differ between stages; set it outside")
        opened: Any = type(self)
        return self if config == self.config else opened(config, streams=self._streams, parent=self)

    def evaluate(self, *, streams: Streams) -> Evaluation:
        """Evaluates the same images every time, in every run: rewards, judges, a picture."""
        return self.evaluate_shared(streams=streams, peers=None)

    @abstractmethod
    def evaluate_shared(self, *, streams: Streams, peers: Peers | None) -> Evaluation:
        """Evaluates as `evaluate` does; with peers every process draws and judges its share of the images."""

    def close(self) -> None:
        """Ends the rewards' threads and processes."""
        self.rewards.close()
