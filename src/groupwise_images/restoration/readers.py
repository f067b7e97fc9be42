"""Readers of handwritten digits, of different kinds: one may reward and another judge. Trained on the digits that
`source.digits` trains on by default.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

# Imported here, by the thread that opens the reward: rewards run at the same time, and two threads that import parts of
# one library for the first time can lock each other out. The images are read by it too.
import sklearn.datasets  # noqa: F401
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from groupwise_images.image_source.base import Digits


def perceptron(prompts: Sequence[Any], completions: Sequence[Any], label: Sequence[int]) -> list[float]:
    """Returns 1 where a perceptron of one hidden layer, trained on clean digits, sees the image's own digit; otherwise
    0.
    """
    return _right(_seen(_perceptron(), completions), label)


def support_vectors(prompts: Sequence[Any], completions: Sequence[Any], label: Sequence[int]) -> list[float]:
    """Returns 1 where a support vector machine, trained on clean digits, reads the image's digit, and 0 elsewhere."""
    return _right(_seen(_support_vectors(), completions), label)


def named_digits(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    label: Sequence[int],
    log_extra: Callable[[str, Sequence[Any]], None] | None = None,
) -> list[float]:
    """Returns what `support_vectors` does, and logs the digit that it sees, for the records and the pictures."""
    seen = _seen(_support_vectors(), completions)
    if log_extra is not None:
        log_extra("read by support vectors", [str(digit) for digit in seen])
    return _right(seen, label)


def _seen(reader: Any, images: Sequence[Any]) -> list[int]:
    return reader.predict(np.stack([np.asarray(image) for image in images]).reshape(len(images), -1) / 255).tolist()


def _right(seen: Sequence[int], labels: Sequence[int]) -> list[float]:
    return [float(digit == label) for digit, label in zip(seen, labels, strict=True)]


@lru_cache(maxsize=1)
def _perceptron() -> Any:
    reader = MLPClassifier(hidden_layer_sizes=(64,), max_iter=100, random_state=0, n_iter_no_change=200)
    with warnings.catch_warnings():
        # Training stops on purpose before the loss has converged.
        warnings.filterwarnings("ignore", message="Stochastic Optimizer")
        return reader.fit(*_clean())


@lru_cache(maxsize=1)
def _support_vectors() -> Any:
    width: Any = 0.02 * 16
    # A fixed seed: without one the fit draws from numpy's global generator, and a resumed run, which fits again, would
    # find that generator moved.
    return SVC(C=5, gamma=width, random_state=0).fit(*_clean())


def _clean() -> tuple[np.ndarray, np.ndarray]:
    pictures = Digits().read().train
    return np.stack([picture.clean.reshape(-1) for picture in pictures]), np.array(
        [picture.columns["label"] for picture in pictures]
    )
