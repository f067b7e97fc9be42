"""The reward of a choice of examples by the task model's answer: one of source 004's modes, or one a number of
examples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from pydantic import Field, model_validator

from groupwise.domain.selection.reward.adaptive_weights import AdaptiveWeights
from groupwise.domain.selection.reward.running_quantile import TimesTen
from groupwise.domain.selection.reward.vqa_mode import (
    SCALED_INFO,
    WRONG_RELEVANCE,
    AnyMode,
    HardPlusSoftV2,
    Hybrid,
    HybridV2,
    Mode,
)
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.components import Groups, Parted
from groupwise.reward.error import RewardError
from groupwise.reward.text import Text, excerpt, prompt_text

SHOTS = "shots"
"""The column with the number of examples that were shown."""
_RANGES = {"info": (-1.0, 1.0), "quality": (-1.0, 1.0)}
"""Lowest and highest values of measured fields; all other fields lie between 0 and 1."""
_BETWEEN_0_AND_1 = ("accuracy", "expected", "probability", "relevance")


@final
class Vqa(Reward):
    """A weighted sum of the measured fields of a choice, by the weights of a mode. A measured value that is missing or
    out of range is an error.

    `hard_plus_soft` and `hard_plus_soft_v2` nearly coincide under a group z-score, which removes the size of the gap
    between right and wrong.

    Example:
        >>> from groupwise.domain.selection.reward.vqa_mode import HardPlusSoft
        >>> reward = Vqa(mode=HardPlusSoft())
        >>> reward(["q1"] * 2, ["7", "3"], correct=[1, 0], accuracy=[0.9, 0.3]).values
        [1.9, 0.3]

    Source: source 004's reward modes.
    """

    kind: Literal["vqa"] = "vqa"
    mode: AnyMode = HardPlusSoftV2()
    """The mode, which states the weights of the measured fields."""
    per_shot: Mapping[int, AnyMode] = Field(default_factory=dict)
    """Number of examples -> mode, for those that differ from `mode`: different strategies for few and for many
    examples.
    """
    adapt: AdaptiveWeights | None = None
    """Lets the weights of the mode's parts adapt to the rollouts; unset leaves them constant."""

    @model_validator(mode="after")
    def _sound(self) -> Vqa:
        if self.isolation == "process":
            raise ValueError('isolation = "process" has no use here: it is arithmetic, and remembers; remove it')
        for shots in self.per_shot:
            if shots < 0:
                raise ValueError(f"per_shot.{shots}: a number of examples is 0 or more")
        if self.adapt is not None and all(len(mode.weights()) < 2 for mode in (self.mode, *self.per_shot.values())):
            raise ValueError(
                f"adapt has no effect: mode {self.mode.kind!r} has one part, whose weight has nothing to be compared"
                " with; remove it"
            )
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        """The measured fields it reads, and the number of examples where modes differ by it."""
        fields = [field for mode in (self.mode, *self.per_shot.values()) for field in mode.needs]
        return tuple(dict.fromkeys([*fields, *([SHOTS] if self.per_shot else [])]))

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest reward: over all measured values, all modes, and all weights that `adapt` can
        reach.

        `quality`, the score of a search, is taken to be the information gain, as in `Measurement`.
        """
        values = [
            value for mode in (self.mode, *self.per_shot.values()) for value in _Rule(mode, self.adapt).extremes()
        ]
        return min(values), max(values)

    def open(self) -> RewardFunction:
        """Opens the reward with an empty memory."""
        return OpenVqa(self)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)


@final
class OpenVqa:
    """The reward, opened: a mode for each number of examples, each with its own scale and weights.

    Args:
        config: the reward.
    """

    def __init__(self, config: Vqa) -> None:
        self.config, self.needs = config, config.needs
        self._rules = {"": _Rule(config.mode, config.adapt)} | {
            str(shots): _Rule(mode, config.adapt) for shots, mode in config.per_shot.items()
        }

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Parted:
        values = []
        for member, prompt in enumerate(columns.get("id", prompts)):
            row = {field: columns[field][member] for field in self.needs}
            rule = self._rule(row.get(SHOTS))
            values.append(rule.value({field: _checked(field, row[field], prompt) for field in rule.mode.needs}))
        # A field that only another number of examples needs may be missing here: it becomes NaN and is not followed.
        fields = {field: [_number(value) for value in columns[field]] for field in self.needs}
        return Parted(values, fields)

    def memory(self) -> dict[str, Any]:
        """Returns scales and running weights of every rule; empty before the first batch."""
        return {name: rule.memory for name, rule in self._rules.items() if rule.memory}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores a memory; entries without a rule of this reward are ignored.

        Args:
            memory: a return value of `memory`.
        """
        for name, rule in self._rules.items():
            rule.memory = dict(memory.get(name, {}))

    def follow(self, groups: Groups) -> dict[str, float]:
        """Updates scales and weights by the fields of a batch, and returns them as metrics.

        Args:
            groups: all groups of the batch.
        """
        metrics: dict[str, float] = {}
        for name, rule in self._rules.items():
            rule_groups = [members for group in groups if (members := self._of_rule(name, rule, group))]
            suffix = f"/{name}_shots" if name else ""
            metrics |= {f"{key}{suffix}": value for key, value in rule.follow(rule_groups).items()}
        return metrics

    def _rule(self, shots: Any) -> _Rule:
        return self._rules.get("" if shots is None else str(int(shots)), self._rules[""])

    def _of_rule(self, name: str, rule: _Rule, group: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        """Selects the members of a group that this rule rewards."""
        size = len(next(iter(group.values()), ()))
        members = [place for place in range(size) if SHOTS not in group or self._rule(group[SHOTS][place]) is rule]
        return {field: [group[field][place] for place in members] for field in rule.mode.needs} if members else {}


class _Rule:
    """One mode with its memory: `scale` and `weights`."""

    def __init__(self, mode: Mode, adapt: AdaptiveWeights | None) -> None:
        self.mode = mode
        self.memory: dict[str, Any] = {}
        self._configured = mode.weights()
        self._adapt = adapt if len(self._configured) > 1 else None
        self._scale = (
            mode.scale if isinstance(mode, Hybrid | HybridV2) and SCALED_INFO in self._configured else TimesTen()
        )

    def weights(self) -> dict[str, float]:
        return (
            self._configured
            if self._adapt is None
            else self._adapt.weights(self._configured, self.memory.get("weights", {}))
        )

    def value(self, fields: Mapping[str, float]) -> float:
        return math.fsum(weight * self._part(part, fields) for part, weight in self.weights().items())

    def extremes(self) -> list[float]:
        """Lists the values at the ends of every field, which include the lowest and the highest: parts are monotonic in
        each field.
        """
        values = []
        weight_total = math.fsum(map(abs, self._configured.values()))
        for ends in itertools.product(*(_RANGES.get(field, (0.0, 1.0)) for field in self.mode.needs)):
            fields = dict(zip(self.mode.needs, ends, strict=True))
            signed = [
                math.copysign(1.0, weight) * self._part(part, fields) for part, weight in self._configured.items()
            ]
            # Adaptive weights keep their absolute sum, which one part may take in full.
            values += (
                [self.value(fields)]
                if self._adapt is None
                else [weight_total * min(signed), weight_total * max(signed)]
            )
        return values

    def follow(self, groups: Groups) -> dict[str, float]:
        if not groups:
            return {}
        metrics: dict[str, float] = {}
        if self._adapt is not None:
            rows = [
                [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)] for group in groups
            ]
            part_values = [
                {part: [self._part(part, row) for row in group] for part in self._configured} for group in rows
            ]
            self.memory["weights"] = self._adapt.observe(self.memory.get("weights", {}), part_values)
            metrics |= {f"part_weight/{part}": weight for part, weight in self.weights().items()}
        if SCALED_INFO in self._configured and not isinstance(self._scale, TimesTen):
            self.memory["scale"] = self._scale.follow(
                self.memory.get("scale", {}), [value for group in groups for value in group["info"]]
            )
            low, high = self._scale.bounds(self.memory["scale"])
            metrics |= {"info_low": low, "info_high": high}
        for field in self.mode.needs:
            values = [value for group in groups for value in group[field]]
            metrics[f"measured/{field}"] = math.fsum(values) / len(values)
        return metrics

    def _part(self, part: str, fields: Mapping[str, float]) -> float:
        if part == SCALED_INFO:
            return self._scale(fields["info"], self.memory.get("scale", {}))
        if part == WRONG_RELEVANCE:
            return (1 - fields["correct"]) * fields["relevance"]
        return fields[part]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _checked(field: str, value: Any, prompt: Text) -> float:
    """Returns a measured value in its range, or raises an error with the query (its id, where it has one) and the
    field.
    """
    query = excerpt(prompt_text(prompt))
    if value is None:
        raise RewardError(
            f"query {query!r} has no {field!r}; measure it, or choose a mode that does not read it", prompt=query
        )
    number = float(value)
    allowed = "0 or 1" if field == "correct" else "0 to 1" if field in _BETWEEN_0_AND_1 else "a finite number"
    # Probabilities of an answer may exceed one by rounding.
    fits = (
        number in (0.0, 1.0)
        if field == "correct"
        else -1e-6 <= number <= 1 + 1e-6
        if field in _BETWEEN_0_AND_1
        else math.isfinite(number)
    )
    if not fits:
        raise RewardError(f"query {query!r}: {field!r} is {value!r}; allowed: {allowed}", prompt=query)
    return number
