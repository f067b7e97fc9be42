from __future__ import annotations

import numpy as np

from groupwise_images.diffusion.source import DigitPrompts as Digits
from groupwise_images.diffusion.source import load, spoil


def test_labels_are_true_unless_some_are_to_be_wrong() -> None:
    images, labels = load()
    plain, spoilt = Digits().read(), Digits(wrong_labels=0.4).read()
    assert np.array_equal(plain.of_prompt, labels)
    assert np.array_equal(plain.images[:, 0], images)
    assert (spoilt.of_prompt != labels).sum() == round(0.4 * len(labels))
    assert 0.0 <= images.min() < images.max() == 1.0


def test_wrong_labels_are_each_of_the_others_alike_and_fixed_by_the_seed() -> None:
    labels = np.zeros(9000, dtype=np.int64)
    wrong = spoil(labels, 1.0, 0)
    counts = np.bincount(wrong, minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 850
    assert np.array_equal(wrong, spoil(labels, 1.0, 0))
    assert not np.array_equal(wrong, spoil(labels, 1.0, 1))
