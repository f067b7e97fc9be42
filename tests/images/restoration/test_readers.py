from __future__ import annotations

import subprocess
import sys

import pytest
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


_FIT = """
from groupwise import streams
from groupwise_images.restoration import readers

before = streams.capture()
readers._perceptron()
readers._support_vectors()
assert streams.capture() == before
"""


@pytest.mark.slow
def test_fitting_leaves_the_global_generators_alone() -> None:
    """A resumed run fits them again, after its own state came back. In a process of its own no thread that another test
    left draws meanwhile.
    """
    fitted = subprocess.run([sys.executable, "-c", _FIT], capture_output=True, text=True, check=False)
    assert fitted.returncode == 0, fitted.stderr
