"""What was sampled on the device has there the log-probs that the model gives it when it is scored again."""

from __future__ import annotations

import pytest
import torch
from tests.causal_lm.conftest import build

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, sample
from groupwise.records import tensors_of

PROMPTS = [[5, 6, 7, 8, 9], [12, 13], [4]]


# Two layers of sums of 16 products on logits of tens: some hundred roundings of their size. In bfloat16 one rounding is
# 4e-3 of it.
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-3), (torch.bfloat16, 2.0)], ids=str
)
@pytest.mark.parametrize("family", ["qwen3", "gpt2", "llama"])
def test_scored_again_it_is_what_was_recorded(
    device: torch.device, family: str, dtype: torch.dtype, bound: float
) -> None:
    backbone = Backbone(build(family, dtype).to(device))
    settings = SamplingConfig(max_new_tokens=12)
    found = sample(
        backbone, GroupBatch(PROMPTS, 4, settings, list(range(12)), requires=("log_prob", "entropy", "score_norm"))
    )
    assert {value.device for value in tensors_of(found).values()} == {backbone.device}
    members = [prompt for prompt in PROMPTS for _ in range(4)]
    with torch.no_grad():
        again = scoring.score(
            backbone,
            scoring.ScoringInputs(
                members, found.tokens, found.mask, requires=frozenset({"log_prob", "entropy", "score_norm"})
            ),
        )
    for name, recorded in (("log_prob", found.log_prob), ("entropy", found.entropy), ("score_norm", found.score_norm)):
        assert recorded is not None
        gap = (again[name] - recorded).abs()[found.mask]
        assert float(gap.max()) <= bound, (name, float(gap.max()))


def test_the_same_seeds_draw_the_same_tokens_as_on_the_cpu(device: torch.device) -> None:
    """In fp64 a seed's token changes only where two thresholds lie within rounding."""
    settings = SamplingConfig(max_new_tokens=12)
    found = [
        sample(Backbone(build("qwen3", torch.float64).to(place)), GroupBatch(PROMPTS, 4, settings, list(range(12))))
        for place in (device, torch.device("cpu"))
    ]
    assert found[0].token_lists() == found[1].token_lists()
