"""Without matching every objective reads what it always read."""

from __future__ import annotations

from groupwise.objective import Objective
from groupwise.objective.preset import method_names


def test_only_the_methods_without_log_probs_noise_their_samples() -> None:
    matching = {name for name in method_names() if not Objective.preset(name).matching.neutral}
    assert matching == {"awm", "diffusion_nft"}


def test_the_sampler_is_asked_for_what_the_loss_reads() -> None:
    grpo, awm = Objective.preset("flow_grpo"), Objective.preset("awm")
    assert grpo.requires_sampled == grpo.requires
    assert awm.requires_sampled == frozenset()
    assert Objective.preset("awm", **{"matching.deterministic": False}).requires_sampled == {"log_prob"}
