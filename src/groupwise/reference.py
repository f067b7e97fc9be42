"""The reference policy, with which the trained policy is compared, and the rules by which it follows the trained
policy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, PieceFromPath
from groupwise.config.errors import Positive
from groupwise.learner.protocol import Learner


class ReferenceRule(Config):
    """The base of the references: a second set of weights, and when it is mixed with the policy's.

    Example:
        >>> class Halfway(ReferenceRule):
        ...     def follow(self, step, score, reference_score):
        ...         return 0.5
        >>> Halfway().follow(1, None, None), Halfway().mixes
        (0.5, True)
    """

    present: ClassVar[bool] = True
    """False where nothing is compared with an earlier policy."""
    mixes: ClassVar[bool] = True
    """False where the reference's weights never change."""
    adapter_off: ClassVar[bool] = False
    """True where, with an adapter, the reference is the model with its adapter switched off."""

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns the policy's share `alpha` in `ref <- alpha theta + (1 - alpha) ref`, at the end of a step.

        Args:
            step: steps that made an update since the reference began, from 1.
            score: the policy's score, turned so that more is better: of its newest evaluation, or measured at this step
                where `measures` says so.
            reference_score: the reference's own score where it was measured; else that of the policy that it was last
                mixed with.

        Returns:
            a number from 0 to 1; `None` where nothing is due; `"refused"` where a mixing was due and the policy is not
            good enough.
        """
        return None

    def measures(self, step: int) -> bool:
        """Returns whether policy and reference are both evaluated before `follow` is asked: never, unless a rule
        compares them.

        Args:
            step: as in `follow`.
        """
        return False


@final
class AbsentReference(ReferenceRule):
    """There is no reference policy.

    Example:
        >>> AbsentReference().kind
        'absent'
    """

    present: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    kind: Literal["absent"] = "absent"


@final
class EmaReference(ReferenceRule):
    """After every step that made an update: `ref <- decay ref + (1 - decay) theta`.

    Args:
        decay: the reference's share; 1 leaves it frozen, 0 copies the policy at every step.

    Example:
        >>> EmaReference().decay
        0.99
    """

    kind: Literal["ema"] = "ema"
    decay: float = Field(default=0.99, ge=0, le=1)

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float:
        """Returns `1 - decay`, at every step."""
        return 1 - self.decay


@final
class FrozenReference(ReferenceRule):
    """`ref = theta_0`, the policy at the start of the first stage that has this reference, so after a supervised
    warm-up; the stages that follow with the same `[reference]` keep it.

    Args:
        adapter: with LoRA, `copy` keeps a copy of the adapter as it was when the reference began, which may have been
            trained before; `off` takes the model with its adapter switched off (no copy; the base model, also where a
            warm-up or an earlier run trained the adapter). Without an adapter the weights are copied.

    Example:
        >>> FrozenReference().adapter
        'copy'
    """

    mixes: ClassVar[bool] = False
    kind: Literal["frozen"] = "frozen"
    adapter: Literal["copy", "off"] = "copy"

    @property
    def adapter_off(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `adapter = "off"`."""
        return self.adapter == "off"


@final
class PeriodicReference(ReferenceRule):
    """Every `sync_steps` steps that made an update: `ref <- alpha theta + (1 - alpha) ref`.

    Args:
        sync_steps: steps with an update between two mixings.
        alpha: the policy's share; 1 copies the policy, 0 leaves the reference frozen.

    Example:
        >>> PeriodicReference().alpha
        0.6

    Source: Gorbatovski et al. 2024, arXiv 2404.09656 (TR-DPO); orientation as in TRL's `ref_model_mixup_alpha`.
    """

    kind: Literal["periodic"] = "periodic"
    sync_steps: Positive = 64
    alpha: float = Field(default=0.6, ge=0, le=1)

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float | None:
        """Returns `alpha` at every `sync_steps`-th step."""
        return None if step % self.sync_steps else self.alpha


# The reference policy beside the live one: the rule by which a second set of weights follows the policy. The weights
# themselves are the learner's.


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
        self.present: bool = config.present
        """True where there is a reference."""
        self._copy = learner.copy(adapter_off=switches_off(config, learner)) if config.present else None

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

    def observe(self, step: int, score: float | None, reference_score: float | None = None) -> str:
        """Lets the reference follow the policy at the end of a step.

        Args:
            step: steps that made an update since the reference began, from 1.
            score: the policy's score, or `None`.
            reference_score: the reference's own, where it was measured.

        Returns:
            `"mixed"`, `"refused"` (quality gate) or `""`.
        """
        if self.score is None:
            self.score = score
        alpha = self.config.follow(step, score, self.score if reference_score is None else reference_score)
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


@final
class QualityGateReference(ReferenceRule):
    """As `periodic`, but a mixing is refused when `score(theta) < score(ref) - margin`.

    Where a mixing is due, both are evaluated as the run's evaluations are (the metric `train.metric`), the reference
    with its own weights: two evaluations every `sync_steps` steps, whatever `train.evaluate_every` is. They are logged
    as `reference/policy_score` and `reference/score`. Nothing is refused while a score is missing.

    Args:
        sync_steps: steps between two mixings.
        alpha: the policy's share.
        margin: the amount by which the score may fall, in the metric's own unit; under `train.metric_goal = "min"`, the
            amount by which it may rise.

    Example:
        >>> gate = QualityGateReference(margin=0.02)
        >>> gate.refuses(0.90, 0.87), gate.refuses(0.90, 0.89), gate.refuses(None, 0.1)
        (True, False, False)
    """

    kind: Literal["quality_gate"] = "quality_gate"
    sync_steps: Positive = 64
    alpha: float = Field(default=0.6, ge=0, le=1)
    margin: float = Field(default=0.02, ge=0)

    def refuses(self, reference_score: float | None, policy_score: float | None) -> bool:
        """Returns whether the policy's score is too far below the reference's for a mixing.

        Args:
            reference_score: the reference's own score.
            policy_score: the policy's.
        """
        return reference_score is not None and policy_score is not None and policy_score < reference_score - self.margin

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns `alpha` at every `sync_steps`-th step, unless the policy has fallen too far."""
        if step % self.sync_steps:
            return None
        return "refused" if self.refuses(reference_score, score) else self.alpha

    def measures(self, step: int) -> bool:
        """Returns whether a mixing is due."""
        return step % self.sync_steps == 0


# The reference of a stage: its default, and the combinations that are refused.


def resolve_reference(config: Any | None, *, required: bool) -> Any:
    """Returns the reference of a stage.

    Args:
        config: the configured reference, or `None` where the user wrote none.
        required: whether the objective compares with a reference (a divergence whose beta may be positive).

    Returns:
        The configured reference; where none is configured, `frozen` where it is required and `absent` where it is not.

    Raises:
        ConfigError: a reference is required and absent, or configured and without use.

    Example:
        >>> resolve_reference(None, required=True).kind, resolve_reference(None, required=False).kind
        ('frozen', 'absent')
    """
    if config is None:
        return FrozenReference() if required else AbsentReference()
    absent = not config.present
    if required and absent:
        raise ConfigError(
            'reference.kind = "absent": the divergence compares with a reference; write reference.kind = "frozen", or'
            " divergence.beta = 0"
        )
    if not required and not absent:
        raise ConfigError(
            f'reference.kind = "{config.kind}": no term of the objective uses a reference; set divergence.beta above 0'
            " or remove [reference]"
        )
    return config


@final
class CallableReference(PieceFromPath, ReferenceRule):
    """The reference whose class is at `path`, configured by `settings`. The class extends `ReferenceRule`.

    Example:
        >>> rule = CallableReference(path="groupwise.reference:EmaReference", settings={"decay": 0.75})
        >>> rule.follow(1, None, None)
        0.25
    """

    base: ClassVar[type[ReferenceRule]] = ReferenceRule

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns the policy's share, or the reason why there is no such share.

        Raises:
            ValueError: it is not a share.
        """
        share = self.called("follow", step, score, reference_score)
        if share is None or share == "refused":
            return share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(
                f"reference {self.path}: follow() returned {share!r} at step {step}; return the policy's share, a"
                " number from 0 to 1, or None where nothing is mixed"
            )
        return float(share)


ReferenceConfig = Annotated[
    AbsentReference | FrozenReference | PeriodicReference | EmaReference | QualityGateReference | CallableReference,
    Field(discriminator="kind"),
]
