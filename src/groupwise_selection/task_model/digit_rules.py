"""A small transformer that learns a rule from the demonstrations it is shown: the task model of the digit-rule
questions.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from groupwise.learner.copy import hash_weights
from groupwise.streams import Streams
from groupwise_selection.example import Example, Query
from groupwise_selection.source.digit_rules import NO, YES, digit_images
from groupwise_selection.task_model.config import DigitRules
from groupwise_selection.task_model.trained import Write, fit, kept

VERSION = 1
"""The version of the trained model. Raise it with every code change that changes the trained weights: a stored model of
an earlier version is not used.
"""

_TRAINED_DEMOS = 4
_FOLLOW_SHARE = 0.75
"""Share of demonstrations in training that follow the rule of the query."""
_NEAREST_SHARE, _NUM_CANDIDATES = 0.5, 12
"""Share of episodes whose demonstrations are similar to the query's image, the nearest of that many candidates, as in
the prompts of a good selector.
"""
_ANSWERS = {YES: 0, NO: 1}


@final
class RuleLearner(nn.Module):
    """Demonstrations `(z, answer)` and a query `z` -> logits of yes and no, by attention over all of them.

    Args:
        config: sizes of the model.

    Example:
        >>> learner = RuleLearner(DigitRules(width=8, num_layers=1, num_heads=2))
        >>> learner(torch.zeros(2, 3, 4), torch.zeros(2, 2, dtype=torch.long)).shape
        torch.Size([2, 2])
    """

    def __init__(self, config: DigitRules) -> None:
        super().__init__()
        self.read = nn.Linear(config.dimensions, config.width)
        self.label = nn.Embedding(3, config.width)
        # Places are counted from the query backwards: the demonstration before it has the same place in a prompt of any
        # length.
        self.place = nn.Parameter(0.02 * torch.randn(config.MOST_DEMOS + 1, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.num_heads, 4 * config.width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, config.num_layers, enable_nested_tensor=False)
        self.answer = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, 2))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Computes the logits `[B, 2]` of yes and no.

        Args:
            images: `[B, n + 1, dimensions]`, components of the demonstrations in the order of the prompt, then of the
                query.
            labels: `[B, n]`, 0 for yes and 1 for no.
        """
        unknown = torch.full_like(labels[:, :1], 2) if labels.shape[1] else labels.new_full((len(labels), 1), 2)
        label_ids = torch.cat([labels, unknown], 1)
        hidden = self.read(images) + self.label(label_ids) + self.place[: images.shape[1]].flip(0)
        return self.answer(self.layers(hidden)[:, -1])


@final
class DigitRulesModel:
    """The trained learner as a task model; see `task_model.base.TaskModel`. It reads images and answers, and no
    text of a question.

    Args:
        learner: the trained model.
    """

    def __init__(self, learner: RuleLearner) -> None:
        self.learner = learner.eval().requires_grad_(False)
        self._hash = hash_weights(learner)
        self._components: dict[str, np.ndarray] = {}

    @torch.no_grad()
    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes log-probs of the answers; an answer other than yes and no has probability 0.

        Raises:
            ValueError: there are more demonstrations than the model has places for.
        """
        logits = self._logits(queries, demos)
        return [
            [row[_ANSWERS[answer]] if answer in _ANSWERS else float("-inf") for answer in row_answers]
            for row, row_answers in zip(logits, answers, strict=True)
        ]

    @torch.no_grad()
    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """Returns the more probable answer of each row."""
        return [YES if yes >= no else NO for yes, no in self._logits(queries, demos)]

    def fingerprint(self) -> str:
        """Returns a hash of the weights."""
        return self._hash

    def _logits(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[list[float]]:
        log_probs: list[list[float]] = [[] for _ in queries]
        by_length: dict[int, list[int]] = {}
        for row, row_demos in enumerate(demos):
            by_length.setdefault(len(row_demos), []).append(row)
        for length, rows in by_length.items():
            if length > DigitRules.MOST_DEMOS:
                raise ValueError(
                    f"query {queries[rows[0]].id!r}: {length} demonstrations, and this task model has places for"
                    f" {DigitRules.MOST_DEMOS}; show fewer"
                )
            for start in range(0, len(rows), 4096):
                batch = rows[start : start + 4096]
                images = np.stack(
                    [
                        [
                            *(self._image_components(example) for example in demos[row]),
                            self._image_components(queries[row]),
                        ]
                        for row in batch
                    ]
                )
                labels = torch.tensor(
                    [[_ANSWERS[example.answer] for example in demos[row]] for row in batch], dtype=torch.long
                ).reshape(len(batch), length)
                device = self.learner.place.device
                logits = functional.log_softmax(
                    self.learner(torch.from_numpy(images).float().to(device), labels.to(device)).double(), dim=1
                )
                for row, values in zip(batch, logits.tolist(), strict=True):
                    log_probs[row] = values
        return log_probs

    def _image_components(self, record: Example | Query) -> np.ndarray:
        """Looks up the components of a record's image by the name of its cluster."""
        key = record.clusters["image"]
        if key not in self._components:
            split, _, number = key.rpartition("-")
            self._components[key] = digit_images(split, self.learner.read.in_features)[1][int(number)]
        return self._components[key]


def open_model(config: DigitRules, device: str = "cpu") -> DigitRulesModel:
    """Opens the trained model on a device, from the cache where it was trained before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Streams(config.seed).seed("task_model"))
        learner = RuleLearner(config)

    def trained() -> Write:
        train(learner, config)
        return lambda folder: save_file(learner.state_dict(), folder / "model.safetensors")

    if config.cache:
        folder = kept(config.model_dump(mode="json", exclude={"cache"}), VERSION, trained)
        learner.load_state_dict(load_file(folder / "model.safetensors"))
    else:
        trained()
    return DigitRulesModel(learner.to(device))


def train(learner: RuleLearner, config: DigitRules) -> None:
    """Trains on episodes: a random rule, up to four images with their answers (a quarter of them follows another rule;
    in half of the episodes they are similar to the query's image), and one image to answer for.

    Args:
        learner: the model with fresh weights.
        config: settings of its training.
    """
    random = Streams(config.seed).numpy("task_model")
    components = digit_images("train", config.dimensions)[1]

    def loss(step: int) -> Tensor:
        images, labels, target = episodes(components, config.batch_size, step % (_TRAINED_DEMOS + 1), random)
        return functional.cross_entropy(learner(images, labels), target)

    fit(learner, loss, num_steps=config.num_steps, learning_rate=config.learning_rate, least=0.02)


def episodes(
    components: np.ndarray, size: int, num_demos: int, random: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws episodes: images `[B, n + 1, dimensions]`, answers of the first `n` `[B, n]`, and of the last `[B]`.

    Args:
        components: components of the images to draw from.
        size: number of episodes, `B`.
        num_demos: `n`.
        random: the random generator.
    """
    rule = random.standard_normal((size, 1, components.shape[1]))
    distractor_rule = random.standard_normal((size, num_demos + 1, components.shape[1]))
    follows = random.random((size, num_demos + 1, 1)) < _FOLLOW_SHARE
    follows[:, -1] = True
    images = components[random.integers(len(components), size=(size, num_demos + 1))]
    nearest = _nearest(
        components[random.integers(len(components), size=(size, _NUM_CANDIDATES))], images[:, -1:], num_demos, random
    )
    images[:, :-1] = np.where(random.random((size, 1, 1)) < _NEAREST_SHARE, nearest, images[:, :-1])
    labels = ((images * np.where(follows, rule, distractor_rule)).sum(2) <= 0).astype(np.int64)
    return torch.from_numpy(images).float(), torch.from_numpy(labels[:, :-1]), torch.from_numpy(labels[:, -1])


def _nearest(candidates: np.ndarray, query_images: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    """Selects the `n` candidates nearest in direction to the query's image, in random order, `[B, n, dimensions]`."""
    likeness = (candidates * query_images).sum(2) / np.linalg.norm(candidates, axis=2)
    order = random.permuted(np.argsort(-likeness, axis=1)[:, :number], axis=1)
    return np.take_along_axis(candidates, order[:, :, None], axis=1)
