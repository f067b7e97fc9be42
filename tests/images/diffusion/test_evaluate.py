from __future__ import annotations

import pytest
import torch

from groupwise_images.diffusion.evaluate import diversity_of_prompts


def images(*levels: int, colour: bool = False) -> torch.Tensor:
    found = torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 2, 2)
    return found.unsqueeze(-1).expand(-1, 2, 2, 3).contiguous() if colour else found.contiguous()


def test_diversity_is_within_a_prompt() -> None:
    assert diversity_of_prompts(images(0, 0, 255, 255), 2) == [0.0, 0.0]
    # Pairs of three levels 0, 51, 255: distances .2, 1, .8.
    for colour in (False, True):
        (found,) = diversity_of_prompts(images(0, 51, 255, colour=colour), 3)
        assert found == pytest.approx((0.2 + 1.0 + 0.8) / 3)
