"""Means and records of held-out images, shared by the domains that make images."""

from __future__ import annotations

import torch

from groupwise.reward import RewardTable
from groupwise_images.image_evaluation import means, records

TABLE = RewardTable(
    {"seen": [1.0, None, 0.0], "lost": [None, None, None], "judge": [0.5, 0.5, 0.2]},
    {"seen": 2.0, "lost": 1.0, "judge": 0.0},
)


def test_missing_rewards_are_left_out_of_means() -> None:
    found = means("ode", TABLE)
    assert found["ode/seen"] == 0.5
    assert abs(found["ode/judge"] - 0.4) < 1e-12
    assert "ode/lost" not in found
    # What is missing adds nothing: 2 and 0.
    assert found["ode/reward"] == 1.0


def test_a_record_for_every_image_and_pictures_of_the_first() -> None:
    images = [torch.full((2, 2), value, dtype=torch.uint8) for value in range(3)]
    found = records("ode", ["a", "a", "b"], ["A", "A", "B"], [0, 1, 0], TABLE, images, limit=1)
    assert [(record["key"], record["sample"], record["rewards"]["seen"], record["reward"]) for record in found] == [
        ("a", 0, 1.0, 2.0),
        ("a", 1, None, None),
        ("b", 0, 0.0, 0.0),
    ]
    assert found[0]["prompt"] == "A"
    assert torch.equal(found[0]["image"], images[0])
    assert all("image" not in record for record in found[1:])
