"""The reference policy beside the live one: the rule by which a second set of weights follows the policy. The weights
themselves are the learner's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from groupwise.learner.protocol import Learner


@final
class ReferencePolicy:
    """A second set of the learner's weights, and the rule by which it follows the policy.

    With an adapter, the second set is of the adapter alone. A frozen reference with `adapter = "off"` has none: the
    adapter is switched off instead.

    Args:
        config: the rule, of a kind of `ReferenceConfig`.
        learner: the policy's learner, with the weights at which the reference begins.

    Example:
        >>> from torch import nn
        >>> from groupwise.learner.local import LocalLearner
        >>> from groupwise.reference import PeriodicReference
        >>> module = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(module.weight, 1.0)
        >>> reference = ReferencePolicy(PeriodicReference(sync_steps=1, alpha=0.5), LocalLearner(module))
        >>> _ = nn.init.constant_(module.weight, 3.0)
        >>> reference.observe(step=1, score=None)
        'mixed'
        >>> with reference.active():
        ...     module.weight.item()
        2.0
        >>> module.weight.item()
        3.0
    """

    def __init__(self, config: Any, learner: Learner) -> None:
        self.config = config
        self.score: float | None = None
        self._copy = learner.copy(adapter_off=switches_off(config, learner)) if config.present else None

    @property
    def present(self) -> bool:
        """True where there is a reference."""
        return self._copy is not None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes the domain compute as the reference within the block, without gradient; after the block, also after an
        exception, it computes as the policy.

        Raises:
            RuntimeError: there is no reference.
        """
        if self._copy is None:
            raise RuntimeError("there is no reference policy to activate")
        with self._copy.active():
            yield

    def observe(self, step: int, score: float | None) -> str:
        """Lets the reference follow the policy at the end of a step.

        Args:
            step: steps that made an update since the reference began, from 1.
            score: the newest score of the policy's evaluations, or `None`.

        Returns:
            `"mixed"`, `"refused"` (quality gate) or `""`.
        """
        if self.score is None:
            self.score = score
        alpha = self.config.follow(step, score, self.score)
        if alpha is None or alpha == "refused":
            return alpha or ""
        self.mix(alpha)
        self.score = score
        return "mixed"

    @property
    def holds_weights(self) -> bool:
        """True where the reference has weights of its own, rather than an adapter to switch off."""
        return self._copy is not None and self._copy.holds_weights

    def distance(self) -> float:
        """Returns `|theta - ref|`, the Euclidean distance over all trained parameters."""
        return self._copy.distance() if self._copy is not None else 0.0

    def pull(self, coefficient: float) -> float:
        """Adds the gradient of `coefficient |theta - ref|^2 / 2` to the policy's own, and returns its value."""
        return self._copy.pull(coefficient) if self._copy is not None else 0.0

    def mix(self, alpha: float) -> None:
        """Moves the reference towards the policy: `ref <- alpha theta + (1 - alpha) ref`.

        Args:
            alpha: the policy's share, 0 to 1.
        """
        if self._copy is not None:
            self._copy.mix(alpha)

    def state(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps."""
        return {"weights": {} if self._copy is None else dict(self._copy.record()), "score": self.score}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes a checkpoint's state back.

        Args:
            state: a state that the method `state` returned.

        Raises:
            ValueError: the checkpoint's reference has other weights.
        """
        if self._copy is not None:
            self._copy.restore(state["weights"])
        self.score = state["score"]


def switches_off(config: Any, learner: Learner) -> bool:
    """Returns whether a reference is the policy with its adapter switched off, and so holds no weights.

    Example:
        >>> from torch import nn
        >>> from groupwise.learner.local import LocalLearner
        >>> from groupwise.reference import FrozenReference
        >>> switches_off(FrozenReference(), LocalLearner(nn.Linear(1, 1)))
        False
    """
    return config.adapter_off and "adapter" in learner.offers
