"""PickScore says which two repositories its folder is made of; its values are tested beside CLIP's."""

from __future__ import annotations

import pytest

from groupwise.reward import RewardError
from groupwise_images.reward.preference import PickScore


def test_the_tokenizer_comes_from_another_repository() -> None:
    with pytest.raises(RewardError, match=r"laion/CLIP-ViT-H-14-laion2B-s32B-b79K tokenizer\.json"):
        PickScore(path="nowhere").open()
