"""The reward of a choice of examples by the task model's answer: one of source 004's modes, or one a number of
examples.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.reward.base import Groups, Parted, Reward, RewardError, RewardFunction
from groupwise.reward.completions import Text, excerpt, prompt_text
from groupwise_selection.reward.adaptive_weights import AdaptiveWeights, RunningQuantile, Scale, TimesTen

# Answers as the VQA challenge compares them: its official normalisation, oddities included.

_ARTICLES = frozenset({"a", "an", "the"})
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_DIGITS)} | {"none": "0"}
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
# As published: the lookbehind is mistyped and always holds, so that every full stop goes which no digit follows.
_FULL_STOP = re.compile(r"(?!<=\d)(\.)(?!\d)")
_DIGIT_COMMA = re.compile(r"(\d)(,)(\d)")
_MOST_FULL_STOPS = 32

_WORDS = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've"
    " he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't"
    " not've o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll"
    " somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd"
    " there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll"
    " what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's"
    " won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've"
)


def _one_apostrophe_less(word: str) -> list[str]:
    return [word[:place] + word[place + 1 :] for place, letter in enumerate(word) if letter == "'"]


# The published table restores a contraction that lacks one apostrophe; its one entry the other way round is a slip that
# scores depend on.
_CONTRACTIONS = {short: word for word in _WORDS.split() for short in _one_apostrophe_less(word)} | {
    "somebody'd": "somebodyd"
}


def normalise(answer: str) -> str:
    """Normalises an answer to the form in which the VQA challenge compares answers.

    Punctuation goes (or becomes a space, where it joins two words), then case, articles, number words up to ten, and
    missing apostrophes.

    Returns:
        its normal form; empty for a text of articles and punctuation alone.

    Example:
        >>> [normalise(text) for text in ("The Two dogs.", "dont know", "T-shirt", "1,000", "3.5")]
        ['2 dogs', "don't know", 't shirt', '1000', '3.5']

    Source: Antol et al. 2015, VQA: Visual Question Answering, arXiv 1505.00468, and the evaluation code published with
    it. It reproduces the quirks of that code, because published scores contain them: a comma between digits anywhere
    makes other punctuation vanish instead of becoming a space, "i'm" without its apostrophe stays "im", and
    "somebody'd" loses its own.
    """
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    grouped = _DIGIT_COMMA.search(text) is not None
    bare = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        bare = bare.replace(mark, "" if beside_space or grouped else " ")
    bare = _FULL_STOP.sub("", bare, count=_MOST_FULL_STOPS)
    words = [_NUMBERS.get(word, word) for word in bare.lower().split()]
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


# VQA accuracy: the agreement of an answer with those of several annotators.

AccuracyForm = Literal["official", "short"]
"""`official` leaves every annotator out once; `short` is `min(k / 3, 1)`."""

Comparison = Literal["exact", "vqa"]
"""`exact` compares answers as they are written; `vqa` as the VQA challenge does, where `The 2 dogs.` is `two dogs`."""


def comparable(answer: str, comparison: Comparison = "vqa") -> str:
    """Returns the text that is equal for answers that count as the same.

    `exact` joins only what looks the same: white space, and the two ways to write an accent. `vqa` is `normalise`,
    except for answers of which it leaves nothing (`<`, `a`), which are compared as they are written.

    Example:
        >>> [comparable(text) for text in ("The Two dogs.", "<", "-1")], comparable(" -1  m", "exact")
        (['2 dogs', '<', '1'], '-1 m')
    """
    written = unicodedata.normalize("NFC", " ".join(answer.split()))
    return written if comparison == "exact" else normalise(answer) or written.lower()


def vqa_accuracy(
    answer: str, answers: Sequence[str], form: AccuracyForm = "official", comparison: Comparison = "vqa"
) -> float:
    """Computes the share of a full score that an answer earns from the annotators' answers, 0 to 1.

    `official`: the mean over annotators of `min(matches among the others / 3, 1)`; `short`: `min(matches / 3, 1)`. The
    two differ for one to three matches (of ten: .3, .6, .9 against .333, .667, 1). Answers are compared by
    `comparable`, also where all annotators agree; the published code then compares with their answers as they are
    written. Where fewer people were asked than could give three matches, the divisor is how many could agree; a
    single one is right or wrong.

    Args:
        answer: the answer to judge.
        answers: answers of the annotators, one each.
        form: the formula, see above.
        comparison: which answers count as the same.

    Returns:
        the accuracy.

    Raises:
        ValueError: `answers` is empty.

    Example:
        >>> ten = ["red"] * 2 + ["blue"] * 8
        >>> (
        ...     round(vqa_accuracy("The red.", ten), 12),
        ...     round(vqa_accuracy("red", ten, "short"), 3),
        ...     vqa_accuracy("blue", ten),
        ...     vqa_accuracy("green", ten),
        ... )
        (0.6, 0.667, 1.0, 0.0)

    Source: Antol et al. 2015, arXiv 1505.00468, section 5, and its published evaluation code (the leave-one-out mean).
    """
    if not answers:
        raise ValueError("answers is empty, and VQA accuracy compares with what people said; give one answer a person")
    given = comparable(answer, comparison)
    matches = sum(comparable(annotator_answer, comparison) == given for annotator_answer in answers)
    if form == "short" or len(answers) == 1:
        return min(matches / min(3, len(answers)), 1.0)
    enough, num_others = min(3, len(answers) - 1), len(answers) - matches
    # Leaving out one who agrees leaves one match less; a fraction of integers, so that ten equal answers give 1
    # exactly.
    return (matches * min(matches - 1, enough) + num_others * min(matches, enough)) / (enough * len(answers))


def relevance(answer: str, answers: Sequence[str], comparison: Comparison = "vqa") -> float:
    """Computes the best F1 of an answer's words with those of any annotator's answer, 0 to 1; 0 without words on either
    side.

    Args:
        answer: the answer to judge.
        answers: answers of the annotators, one each.
        comparison: which words count as the same.

    Example:
        >>> relevance("a red bus", ["bus", "blue car"])
        0.6666666666666666
    """
    words = comparable(answer, comparison).split()
    return max(
        (
            _overlap(words, comparable(annotator_answer, comparison).split())
            for annotator_answer in dict.fromkeys(answers)
        ),
        default=0.0,
    )


def _overlap(words: Sequence[str], annotator_words: Sequence[str]) -> float:
    shared = sum(min(words.count(word), annotator_words.count(word)) for word in set(words))
    return 2 * shared / (len(words) + len(annotator_words)) if shared else 0.0


# The reward of a choice of examples: source 004's reward modes, each a weighted sum of measured fields.
#
# Fields, one a member: `correct` h in {0, 1}; `accuracy` s in [0, 1] (soft VQA accuracy); `info` = P(y|x,c) - P(y|x),
# the gain in the probability of the answer y by the examples c; `expected` = sum_a P(a|x,c) accuracy(a);
# `probability` = P(y|x,c); `quality`, the score that a search gave; `relevance` of a wrong answer.
#
# `hard_plus_soft` and `hard_plus_soft_v2` order members almost alike, and a group z-score removes the scale: under it
# their advantages nearly coincide, and do so exactly in a group that has two different rewards at most, or in which
# all are right, or all are wrong.

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
        WRONG_RELEVANCE: 0.1,
    },
}
"""The weights of every mode by its `kind`: mode -> part -> weight. The classes below state the keys of the modes."""


class Mode(Config):
    """The base of all modes: parts with weights, and the measured fields that they read."""

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


@final
class HardPlusSoft(Mode):
    """`hard_weight h + soft_weight s`: right 1 to 2, wrong 0 to 1 with both weights 1. As `hard_plus_soft_v2`, also
    called `separated`, `2 hard_weight h + soft_weight s`: right 2 to 3.

    Under a group z-score the two nearly coincide: the gap between right and wrong is scaled away.

    Example:
        >>> HardPlusSoft(hard_weight=2.0, soft_weight=0.5).weights()
        {'correct': 2.0, 'accuracy': 0.5}
        >>> HardPlusSoft(kind="separated").weights()
        {'correct': 2.0, 'accuracy': 1.0}
    """

    kind: Literal["hard_plus_soft", "hard_plus_soft_v2", "separated"] = "hard_plus_soft"
    hard_weight: Weight = 1.0
    """Weight of being right."""
    soft_weight: Weight = 1.0
    """Weight of the accuracy."""

    @model_validator(mode="after")
    def _something(self) -> HardPlusSoft:
        if self.hard_weight == 0 and self.soft_weight == 0:
            raise ValueError(
                "hard_weight and soft_weight are both 0, so that every reward is; give one of them another value"
            )
        return self


@final
class Hybrid(Mode):
    """`alpha scale(info) + (1 - alpha) (h + s / 2)`: the information gain and the answer's worth mixed. As `hybrid_v2`,
    `alpha scale(info) + (1 - alpha) (2 h + s)`; source 004's lists name it and give no formula, and this is ours.

    Example:
        >>> Hybrid(alpha=0.5).weights()
        {'scaled_info': 0.5, 'correct': 0.5, 'accuracy': 0.25}
        >>> Hybrid(kind="hybrid_v2", alpha=0.25).weights()
        {'scaled_info': 0.25, 'correct': 1.5, 'accuracy': 0.75}
    """

    kind: Literal["hybrid", "hybrid_v2"] = "hybrid"
    alpha: Share = 0.5
    """The share of the information gain. (Source 004 reads it from HARD_WEIGHT.)"""
    scale: Scale = RunningQuantile()
    """The scale of the information gain; `x10` is the source's fixed scale."""


@final
class Plain(Mode):
    """`h` (`hard`): 1 for a right answer, 0 for a wrong one; or `s` (`soft`): only the accuracy.

    Example:
        >>> Plain().needs, Plain(kind="soft").needs
        (('correct',), ('accuracy',))
    """

    kind: Literal["hard", "soft"] = "hard"


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
    """`hard_weight h + probability_weight P(y|x,c) + (1 - h) relevance / 10`: a wrong answer earns a little for being
    near. The last term acts on wrong answers only, so that it cannot compete with being right.

    Example:
        >>> Relevance().weights()
        {'correct': 2.0, 'probability': 1.0, 'wrong_relevance': 0.1}
    """

    kind: Literal["relevance"] = "relevance"
    hard_weight: Weight = 2.0
    """Weight of being right."""
    probability_weight: Weight = 1.0
    """Weight of the probability of the answer."""


AnyMode = Annotated[Legacy | HardPlusSoft | Hybrid | Plain | Expected | Relevance, Field(discriminator="kind")]
"""Any mode, distinguished by `kind`."""


SHOTS = "shots"
"""The column with the number of examples that were shown."""
_RANGES = {"info": (-1.0, 1.0), "quality": (-1.0, 1.0)}
"""Lowest and highest values of measured fields; all other fields are between 0 and 1."""
_BETWEEN_0_AND_1 = ("accuracy", "expected", "probability", "relevance")


@final
class Vqa(Reward):
    """A weighted sum of the measured fields of a choice, by the weights of a mode. A measured value that is missing or
    out of range is an error.

    `hard_plus_soft` and `hard_plus_soft_v2` nearly coincide under a group z-score, which removes the size of the gap
    between right and wrong.

    Example:
        >>> from groupwise_selection.reward.vqa import HardPlusSoft
        >>> reward = Vqa(mode=HardPlusSoft())
        >>> reward(["q1"] * 2, ["7", "3"], correct=[1, 0], accuracy=[0.9, 0.3]).values
        [1.9, 0.3]

    Source: source 004's reward modes.
    """

    kind: Literal["vqa"] = "vqa"
    mode: AnyMode = HardPlusSoft(kind="hard_plus_soft_v2")
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
        self._scale = mode.scale if isinstance(mode, Hybrid) and SCALED_INFO in self._configured else TimesTen()

    def weights(self) -> dict[str, float]:
        if self._adapt is None:
            return self._configured
        return self._adapt.weights(self._configured, self.memory.get("weights", {}))

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
    if field == "correct":
        fits, allowed = number in (0.0, 1.0), "0 or 1"
    elif field in _BETWEEN_0_AND_1:
        # Probabilities of an answer may exceed one by rounding.
        fits, allowed = -1e-6 <= number <= 1 + 1e-6, "0 to 1"
    else:
        fits, allowed = math.isfinite(number), "a finite number"
    if not fits:
        raise RewardError(f"query {query!r}: {field!r} is {value!r}; allowed: {allowed}", prompt=query)
    return number
