from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from groupwise_images.diffusion.digit_readers import neighbours, support_vectors
from groupwise_images.diffusion.source import load


@pytest.mark.parametrize(("reader", "unseen"), [(support_vectors, 1), (neighbours, 0)])
def test_reads_images_that_it_has_not_seen(reader: object, unseen: int) -> None:
    images, labels = load()
    pixels = [np.repeat((image * 255).astype("uint8")[:, :, None], 3, 2) for image in images[unseen::2]]
    found = reader(pixels)  # type: ignore[operator]
    assert found.shape == (len(pixels), 10)
    assert np.allclose(found.sum(1), 1)
    assert (found.argmax(1) == labels[unseen::2]).mean() > 0.975


IMPORTS = """
import sys, threading
import torch
from groupwise.reward import Rewards
from groupwise_images.reward.classifier import Classifier

class Noted:
    elsewhere = []
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            cls.elsewhere.append(name)

sys.meta_path.insert(0, Noted)
assert "sklearn" not in sys.modules
module = "groupwise_images.diffusion.digit_readers:"
with Rewards({name: Classifier(function=module + name, probabilities=True) for name in ("support_vectors", "neighbours")}) as rewards:
    table = rewards.score(["3"] * 4, list(torch.randint(0, 256, (4, 8, 8), dtype=torch.uint8)), {"label": [3] * 4})
assert all(0 <= value <= 1 for values in table.values.values() for value in values)
print([name for name in Noted.elsewhere if name.split(".")[0] in ("sklearn", "scipy", "joblib", "numpy")])
"""  # noqa: E501


@pytest.mark.slow
def test_both_read_at_once_and_neither_thread_imports_a_part_of_a_library() -> None:
    """Two threads that import parts of scikit-learn for the first time can wait for each other for ever: whoever opens
    a reader imports what it needs.
    """
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
