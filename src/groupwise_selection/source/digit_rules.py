"""Digit-rule questions: real images of digits, questions that name an unexplained rule, and demonstrations that follow
the rule. Nothing is downloaded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import PerStep, Seed
from groupwise_selection.example import Example, Query, Questions

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]

YES, NO = "yes", "no"
NUM_IMAGES = {"train": 1000, "validation": 200, "held_out": 597}
"""The split of scikit-learn's 1,797 digits, after a fixed shuffle. Demonstrations show images of `train` only."""
DIMENSIONS = 4
"""Principal components of an image that rules are made of, unless the configuration sets another number."""


@final
class DigitRules(Config):
    """Questions `is this digit a NAME?` about scikit-learn's handwritten digits, to be answered from demonstrations.

    A rule is a direction `w` in the whitened principal components `z` of the images: the answer is yes where `w z > 0`,
    and ten annotators say so, each of whom errs with probability `doubt exp(-|w z| / margin) / 2`. Rules of the three
    splits are different rules, and so are the images that are asked about. An embedding joins three unit vectors: the
    image's `z`, a code of the question (a random vector of the rule, with noise, which says nothing about `w`), and
    noise; similarity is the weighted mean of their cosines. Half of a pool follows the query's
    rule.

    Args:
        dimensions: principal components of an image that rules are made of; the task model must have as many.
        num_rules: number of rules in the three splits together, divided as 8 : 1 : 4.
        num_train, num_validation, num_held_out: queries of each split.
        pool_size: examples that may be shown for a query.
        bank_size: solved examples of a rule, from which pools are drawn.
        image_weight, question_weight, nuisance_weight: weights of the three parts in the similarity; divided by their
            sum.
        question_noise: length of the noise in a question's code, where the code has length 1.
        doubt, margin: the annotators' rate of errors, see above.
        seed: seed of rules, pools and annotators. It is not the run's seed: runs with different seeds are judged on the
            same questions.

    Example:
        >>> questions = DigitRules(num_rules=26, num_train=8, num_validation=2, num_held_out=4).read()
        >>> query = questions.train[0]
        >>> len(query.pool), len(query.answers), query.choices, sorted(query.clusters)
        (32, 10, ('yes', 'no'), ['image', 'rule'])
    """

    kind: Literal["digit_rules"] = "digit_rules"
    dimensions: Annotated[int, Field(ge=2, le=16)] = DIMENSIONS
    num_rules: Annotated[PerStep, Field(ge=26)] = 208
    num_train: PerStep = 4096
    num_validation: PerStep = 512
    num_held_out: PerStep = 2048
    pool_size: Annotated[PerStep, Field(ge=2)] = 32
    bank_size: PerStep = 64
    image_weight: Share = 0.25
    question_weight: Share = 0.3
    nuisance_weight: Share = 0.45
    question_noise: Share = 0.7
    doubt: Annotated[float, Field(ge=0, le=1)] = 1.0
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    seed: Seed = 0

    @model_validator(mode="after")
    def _sound(self) -> DigitRules:
        if self.image_weight + self.question_weight + self.nuisance_weight <= 0:
            raise ValueError(
                "image_weight, question_weight and nuisance_weight are all 0; an embedding needs at least one part"
            )
        if self.bank_size <= self.pool_size // 2 or self.bank_size > NUM_IMAGES["train"]:
            least, most = self.pool_size // 2 + 1, NUM_IMAGES["train"]
            raise ValueError(
                f"bank_size = {self.bank_size}: half of a pool is drawn from it without the query's own image; write"
                f" {least} to {most}"
            )
        return self

    def read(self) -> Questions:
        """Generates all questions, split; the same on every call."""
        random = np.random.default_rng(self.seed)
        train_end, validation_end = self.num_rules * 8 // 13, self.num_rules * 9 // 13
        bounds = {
            "train": (0, train_end),
            "validation": (train_end, validation_end),
            "held_out": (validation_end, self.num_rules),
        }
        numbers = {"train": self.num_train, "validation": self.num_validation, "held_out": self.num_held_out}
        queries = {}
        for split, (start, end) in bounds.items():
            rules = [_Rule.draw(number, self.dimensions, random) for number in range(start, end)]
            for rule in rules:
                self._solve(rule, random)
            queries[split] = self._queries(split, numbers[split], rules, random)
        return Questions(queries["train"], queries["validation"], queries["held_out"])

    def _solve(self, rule: _Rule, random: np.random.Generator) -> None:
        """Fills a rule's bank: training images with the answers of most annotators."""
        images, components = digit_images("train", self.dimensions)
        chosen = random.choice(len(images), self.bank_size, replace=False)
        votes = self._votes(components[chosen] @ rule.direction, random)
        embeddings = self._embeddings(components[chosen], np.broadcast_to(rule.code, (len(chosen), _CODE_SIZE)), random)
        for image, vote, embedding in zip(chosen.tolist(), votes.tolist(), embeddings, strict=True):
            clusters = {"image": f"train-{image}", "rule": rule.name}
            answer = YES if 2 * vote >= _NUM_ANNOTATORS else NO
            rule.bank.append(Example(f"{rule.name}-{image}", rule.question, answer, embedding, images[image], clusters))

    def _queries(self, split: str, number: int, rules: list[_Rule], random: np.random.Generator) -> list[Query]:
        images, components = digit_images(split, self.dimensions)
        rule_numbers, image_numbers = (
            random.integers(len(rules), size=number),
            random.integers(len(images), size=number),
        )
        directions, codes = (
            np.stack([getattr(rule, name) for rule in rules])[rule_numbers] for name in ("direction", "code")
        )
        votes = self._votes((components[image_numbers] * directions).sum(1), random)
        embeddings = self._embeddings(components[image_numbers], codes, random)
        queries = []
        for place, (rule, image, vote) in enumerate(
            zip(rule_numbers.tolist(), image_numbers.tolist(), votes.tolist(), strict=True)
        ):
            clusters = {"image": f"{split}-{image}", "rule": rules[rule].name}
            answers = (YES,) * vote + (NO,) * (_NUM_ANNOTATORS - vote)
            pool = self._pool(rule, clusters["image"], rules, random)
            # A tie counts as yes, as for the examples: of equally frequent answers the first wins.
            queries.append(
                Query(
                    f"{split}-{place}",
                    rules[rule].question,
                    answers,
                    embeddings[place],
                    pool,
                    images[image],
                    (YES, NO),
                    clusters,
                )
            )
        return queries

    def _pool(
        self, query_rule: int, image: str, rules: list[_Rule], random: np.random.Generator
    ) -> tuple[Example, ...]:
        """Draws a pool: half of its examples follow the query's rule with other images, the others follow other
        rules.
        """
        half = self.pool_size // 2
        same = [rules[query_rule].bank[place] for place in random.permutation(self.bank_size)[: half + 1].tolist()]
        pool = [example for example in same if example.clusters["image"] != image][:half]
        taken: set[str] = set()
        while len(pool) < self.pool_size:
            bank = rules[(query_rule + int(random.integers(1, len(rules)))) % len(rules)].bank
            example = bank[int(random.integers(len(bank)))]
            if example.id not in taken:
                taken.add(example.id)
                pool.append(example)
        return tuple(pool[place] for place in random.permutation(len(pool)).tolist())

    def _votes(self, heights: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draws how many of the ten annotators say yes, for images at these heights `w z` above the rule's plane."""
        wrong = 0.5 * self.doubt * np.exp(-np.abs(heights) / self.margin)
        return random.binomial(_NUM_ANNOTATORS, np.where(heights > 0, 1 - wrong, wrong))

    def _embeddings(self, components: np.ndarray, codes: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = len(components)
        noisy_codes = codes + self.question_noise * _unit(random.standard_normal((size, _CODE_SIZE)))
        weights = np.array([self.image_weight, self.question_weight, self.nuisance_weight])
        unit_vectors = (_unit(components), _unit(noisy_codes), _unit(random.standard_normal((size, _NUISANCE_SIZE))))
        return np.concatenate(
            [vectors * np.sqrt(weight / weights.sum()) for vectors, weight in zip(unit_vectors, weights, strict=True)],
            axis=1,
        ).astype(np.float32)


_NUM_ANNOTATORS, _CODE_SIZE, _NUISANCE_SIZE = 10, 16, 16
_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "zu", "xa")


@final
class _Rule:
    """A rule with its solved examples."""

    def __init__(self, name: str, direction: np.ndarray, code: np.ndarray) -> None:
        self.name, self.direction, self.code = name, direction, code
        self.question = f"is this digit a {name}?"
        self.bank: list[Example] = []

    @staticmethod
    def draw(number: int, dimensions: int, random: np.random.Generator) -> _Rule:
        return _Rule(
            name_of(number), _unit(random.standard_normal(dimensions)), _unit(random.standard_normal(_CODE_SIZE))
        )


def name_of(rule: int) -> str:
    """Returns a word for a rule.

    Args:
        rule: number of the rule.

    Example:
        >>> name_of(0), name_of(17)
        ('baba', 'dede')
    """
    base = len(_SYLLABLES)
    word = _SYLLABLES[rule // base % base] + _SYLLABLES[rule % base]
    return word if rule < base * base else f"{word}{rule // (base * base)}"


@lru_cache(maxsize=8)
def digit_images(split: str, dimensions: int = DIMENSIONS) -> tuple[np.ndarray, np.ndarray]:
    """Loads the images of a split, `uint8 [N, 8, 8]` (white is 255), and their whitened principal components, fp64 `[N,
    dimensions]`.

    The components are those of the training images.

    Args:
        split: `train`, `validation` or `held_out`.
        dimensions: number of components, the largest first.

    Example:
        >>> images, components = digit_images("train")
        >>> images.shape, components.shape, round(float(components.std()), 2)
        ((1000, 8, 8), (1000, 4), 1.0)
    """
    from sklearn.datasets import load_digits

    dataset: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(dataset.images))
    start = {"train": 0, "validation": NUM_IMAGES["train"], "held_out": NUM_IMAGES["train"] + NUM_IMAGES["validation"]}[
        split
    ]
    flat = dataset.images.reshape(len(dataset.images), -1)[order] / 16
    train = flat[: NUM_IMAGES["train"]]
    mean = train.mean(0)
    _, spread, directions = np.linalg.svd(train - mean, full_matrices=False)
    # The sign of a principal component is the library's whim; here its largest entry is positive.
    directions = (
        directions[:dimensions]
        * np.sign(directions[np.arange(dimensions), np.abs(directions[:dimensions]).argmax(1)])[:, None]
    )
    components = (flat - mean) @ directions.T / (spread[:dimensions] / np.sqrt(len(train)))
    rows = slice(start, start + NUM_IMAGES[split])
    return np.round(flat[rows].reshape(-1, 8, 8) * 255).astype(np.uint8), components[rows]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
