"""The reward of a choice of examples: source 004's reward modes, each a weighted sum of measured fields.

Fields, one a member: `correct` h in {0, 1}; `accuracy` s in [0, 1] (soft VQA accuracy); `info` = P(y|x,c) - P(y|x),
the gain in the probability of the answer y by the examples c; `expected` = sum_a P(a|x,c) accuracy(a); `probability`
= P(y|x,c); `quality`, the score that a search gave; `relevance` of a wrong answer.

`hard_plus_soft` and `hard_plus_soft_v2` order members almost alike, and a group z-score removes the scale: under it
their advantages nearly coincide, and do so exactly in a group that has two different rewards at most, or in which all
are right, or all are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.domain.selection.reward.running_quantile import RunningQuantile, Scale

Weight = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]

SCALED_INFO = "scaled_info"
WRONG_RELEVANCE = "wrong_relevance"
FIELDS_OF = {SCALED_INFO: ("info",), WRONG_RELEVANCE: ("correct", "relevance")}
"""The fields of the parts that are computed: `info` on its scale, and `(1 - correct) relevance`."""


_WEIGHTS: Mapping[str, Callable[[Any], Mapping[str, float]]] = {
    "legacy": lambda mode: (
        {"info": 1.0}
        if mode.alpha is None and mode.beta is None
        else {"quality": mode.alpha or 0.0, "correct": mode.beta or 0.0}
    ),
    "hard": lambda mode: {"correct": 1.0},
    "soft": lambda mode: {"accuracy": 1.0},
    "expected": lambda mode: {"correct": mode.hard_weight, "expected": 1.0},
    "hard_plus_soft": lambda mode: {"correct": mode.hard_weight, "accuracy": mode.soft_weight},
    "hard_plus_soft_v2": lambda mode: {"correct": 2 * mode.hard_weight, "accuracy": mode.soft_weight},
    "separated": lambda mode: {"correct": 2 * mode.hard_weight, "accuracy": mode.soft_weight},
    "hybrid": lambda mode: {
        SCALED_INFO: mode.alpha,
        "correct": 1 - mode.alpha,
        "accuracy": 0.5 * (1 - mode.alpha),
    },
    "hybrid_v2": lambda mode: {SCALED_INFO: mode.alpha, "correct": 2 * (1 - mode.alpha), "accuracy": 1 - mode.alpha},
    "relevance": lambda mode: {
        "correct": mode.hard_weight,
        "probability": mode.probability_weight,
        WRONG_RELEVANCE: mode.relevance_weight,
    },
}
"""The weights of every mode by its `kind`: mode -> part -> weight. The classes below state the keys of the modes."""


class Mode(Config):
    """The base of all modes: parts with weights, and the measured fields behind them."""

    def weights(self) -> dict[str, float]:
        """Returns part -> weight; parts of weight 0 are left out."""
        mode: Any = self
        return {part: weight for part, weight in _WEIGHTS[mode.kind](mode).items() if weight != 0}

    @property
    def needs(self) -> tuple[str, ...]:
        """The measured fields that the mode reads."""
        return tuple(dict.fromkeys(field for part in self.weights() for field in FIELDS_OF.get(part, (part,))))


@final
class Legacy(Mode):
    """`info`; with `alpha` or `beta` given, `alpha quality + beta correct`.

    Example:
        >>> Legacy().weights(), Legacy(alpha=0.0, beta=1.0).weights()
        ({'info': 1.0}, {'correct': 1.0})
    """

    kind: Literal["legacy"] = "legacy"
    alpha: Weight | None = None
    """Weight of the search's score, of which more is better."""
    beta: Weight | None = None
    """Weight of being right."""

    @model_validator(mode="after")
    def _something(self) -> Legacy:
        if not self.weights():
            raise ValueError(
                "alpha and beta are both 0, so that every reward is; leave both out for the information gain, or write"
                " beta = 1.0"
            )
        return self


class _Weighted(Mode):
    hard_weight: Weight = 1.0
    """Weight of being right."""
    soft_weight: Weight = 1.0
    """Weight of the accuracy."""

    @model_validator(mode="after")
    def _something(self) -> _Weighted:
        if self.hard_weight == 0 and self.soft_weight == 0:
            raise ValueError(
                "hard_weight and soft_weight are both 0, so that every reward is; give one of them another value"
            )
        return self


@final
class HardPlusSoft(_Weighted):
    """`hard_weight h + soft_weight s`: right 1 to 2, wrong 0 to 1 with both weights 1.

    Example:
        >>> HardPlusSoft(hard_weight=2.0, soft_weight=0.5).weights()
        {'correct': 2.0, 'accuracy': 0.5}
    """

    kind: Literal["hard_plus_soft"] = "hard_plus_soft"


@final
class HardPlusSoftV2(_Weighted):
    """`2 hard_weight h + soft_weight s`, also called `separated`: right 2 to 3, wrong 0 to 1 with both weights 1.

    Under a group z-score it nearly coincides with `hard_plus_soft`: the gap between right and wrong is scaled away.

    Example:
        >>> HardPlusSoftV2().weights()
        {'correct': 2.0, 'accuracy': 1.0}
    """

    kind: Literal["hard_plus_soft_v2", "separated"] = "hard_plus_soft_v2"


@final
class Hybrid(Mode):
    """`alpha scale(info) + (1 - alpha) (h + s / 2)`.

    Example:
        >>> Hybrid(alpha=0.5).weights()
        {'scaled_info': 0.5, 'correct': 0.5, 'accuracy': 0.25}
    """

    kind: Literal["hybrid"] = "hybrid"
    alpha: Share = 0.5
    """The share of the information gain. (Source 004 reads it from HARD_WEIGHT.)"""
    scale: Scale = RunningQuantile()
    """The scale of the information gain; `x10` is the source's fixed scale."""


@final
class HybridV2(Mode):
    """`alpha scale(info) + (1 - alpha) (2 h + s)`: the information gain mixed with `hard_plus_soft_v2`.

    Source 004's lists name it and give no formula; this is ours.

    Example:
        >>> HybridV2(alpha=0.25).weights()
        {'scaled_info': 0.25, 'correct': 1.5, 'accuracy': 0.75}
    """

    kind: Literal["hybrid_v2"] = "hybrid_v2"
    alpha: Share = 0.5
    """The share of the information gain."""
    scale: Scale = RunningQuantile()
    """The scale of the information gain."""


@final
class Hard(Mode):
    """`h`: 1 for a right answer, 0 for a wrong one.

    Example:
        >>> Hard().needs
        ('correct',)
    """

    kind: Literal["hard"] = "hard"


@final
class Soft(Mode):
    """`s`: only the accuracy.

    Example:
        >>> Soft().needs
        ('accuracy',)
    """

    kind: Literal["soft"] = "soft"


@final
class Expected(Mode):
    """`2 h + E`: the mean accuracy of answers drawn from the task model, in place of the accuracy of its best
    answer; few groups are flat under it.

    Example:
        >>> Expected().weights()
        {'correct': 2.0, 'expected': 1.0}
    """

    kind: Literal["expected"] = "expected"
    hard_weight: Weight = 2.0
    """Weight of being right; 0 leaves only the expectation."""


@final
class Relevance(Mode):
    """`hard_weight h + probability_weight P(y|x,c) + relevance_weight (1 - h) relevance`: a wrong answer earns a little
    for being near.

    The last term acts on wrong answers only, so that it cannot compete with being right.

    Example:
        >>> Relevance().weights()
        {'correct': 2.0, 'probability': 1.0, 'wrong_relevance': 0.1}
    """

    kind: Literal["relevance"] = "relevance"
    hard_weight: Weight = 2.0
    """Weight of being right."""
    probability_weight: Weight = 1.0
    """Weight of the probability of the answer."""
    relevance_weight: Weight = 0.1
    """Weight of a wrong answer's nearness."""


AnyMode = Annotated[
    Legacy | HardPlusSoft | HardPlusSoftV2 | Hybrid | HybridV2 | Hard | Soft | Expected | Relevance,
    Field(discriminator="kind"),
]
"""Any mode, told apart by `kind`."""
