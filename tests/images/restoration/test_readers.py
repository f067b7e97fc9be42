from __future__ import annotations

import torch

from groupwise_images.image_source import Digits
from groupwise_images.restoration.readers import perceptron, support_vectors


def test_both_read_clean_digits_that_they_never_saw() -> None:
    held_out = Digits().read().held_out
    images = [torch.from_numpy((picture.clean[0] * 255 + 0.5).astype("uint8")) for picture in held_out]
    labels = [picture.columns["label"] for picture in held_out]
    for reader in (perceptron, support_vectors):
        right = reader([""] * len(images), images, labels)
        assert sum(right) / len(right) > 0.96
    assert support_vectors([""], [images[0]], [(labels[0] + 1) % 10]) == [0.0]
