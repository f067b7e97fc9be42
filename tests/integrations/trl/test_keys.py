from pathlib import Path
from typing import Any

import pytest
from tests.integrations.trl import tiny

from groupwise.config import difference
from groupwise.objective import Objective
from groupwise.objective.credit import OffPolicyMask, TopEntropy
from groupwise.objective.objective import warnings as doubts
from groupwise.schedule import Threshold
from groupwise_trainers.trl.keys import contradictions, objective_of

pytestmark = pytest.mark.slow

PRESETS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    "dr_grpo": {"loss_type": "dr_grpo", "max_completion_length": 1024, "scale_rewards": "none"},
    "bnpo": {"loss_type": "bnpo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.002, "epsilon_high": 0.0025},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "lite_ppo": {"loss_type": "dapo", "scale_rewards": "batch"},
    "gdpo": {"loss_type": "dapo", "multi_objective_aggregation": "normalize_then_sum"},
}
"""What one writes in TRL for each preset that both have."""


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_that_both_have_is_the_same(tmp_path: Path, name: str) -> None:
    found = objective_of(tiny.settings(tmp_path, **PRESETS[name]))
    changed = difference(
        Objective.preset(name).model_dump(mode="json", exclude={"name"}),
        found.model_dump(mode="json", exclude={"name"}),
    )
    # TRL sums the rewards that are there; and samples no further prompts.
    allowed = {"partial_rewards", "admission.kind", "admission.max_rounds"} if name == "dapo" else {"partial_rewards"}
    assert set(changed) == allowed

    assert not list(contradictions(tiny.settings(tmp_path, **PRESETS[name]), Objective.preset(name)))
    assert not list(contradictions(tiny.settings(tmp_path), Objective.preset(name)))


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        (
            "grpo",
            {"loss_type": "cispo"},
            "loss_type = 'cispo' contradicts the objective 'grpo', which says trust.kind = 'clip' and aggregation.kind",
        ),
        ("dapo", {"epsilon_high": 0.3}, "which says trust.high = 0.28: leave epsilon_high out"),
        ("sapo", {"epsilon": 0.1}, "which says nothing of the kind"),
        ("grpo", {"delta": 3.0}, "delta = 3.0"),
        ("dual_clip", {"delta": 2.0}, "which says trust.bound = 3.0"),
        ("grpo", {"beta": 0.1}, "which says divergence.beta.value = 0.04"),
        ("dr_grpo", {"scale_rewards": False}, ""),
        ("gspo", {"importance_sampling_level": "sequence"}, ""),
        ("grpo", {"importance_sampling_level": "sequence"}, "which says ratio.kind = 'token'"),
        ("grpo", {"entropy_coef": 0.1}, "which says entropy.value = 0.0"),
        ("grpo", {"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold = 0.5"),
        ("cispo", {"epsilon_high": 5.0}, ""),
        ("dual_clip", {"loss_type": "bnpo"}, ""),
        ("rloo", {"beta": 0.05}, "divergence.place = 'reward'"),
        ("sapo", {"sapo_temperature_neg": 2.0}, "which says trust.tau_neg = 1.05"),
        ("grpo+tis", {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0}, ""),
        ("grpo+tis", {"vllm_importance_sampling_mode": "token_mask"}, "which says correction.kind = 'truncate'"),
        ("grpo+tis", {"vllm_importance_sampling_clip_min": 0.5}, "clip_min = 0.5 contradicts"),
        ("grpo+mis", {"vllm_importance_sampling_mode": "sequence_truncate"}, "which says correction.kind = 'mask'"),
        (
            "grpo+seq_tis",
            {"vllm_importance_sampling_mode": "sequence_truncate", "vllm_importance_sampling_clip_max": 2.0},
            "",
        ),
        ("grpo", {"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation"),
    ],
    ids=str,
)
def test_a_contradiction_names_key_value_and_what_decides(
    tmp_path: Path, name: str, keys: dict[str, Any], expected: str
) -> None:
    found = "; ".join(contradictions(tiny.settings(tmp_path, **keys), Objective.preset(name)))
    assert expected in found
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"loss_type": "gropo"}, "is none of TRL's"),
        ({"importance_sampling_level": "word"}, "write one of token, sequence"),
        ({"scale_rewards": "all"}, "write one of group, batch, none"),
        ({"loss_type": "vespo", "importance_sampling_level": "sequence"}, "its own sequence weight"),
        ({"delta": 1.1}, "below 1 + epsilon_high"),
        ({"beta": 0.1, "importance_sampling_level": "sequence"}, "use_bias_correction_kl = False"),
        ({"top_entropy_quantile": 0.5, "entropy_coef": 0.1}, "write entropy_coef = 0"),
        ({"top_entropy_quantile": 0.5, "use_adaptive_entropy": True}, "use_adaptive_entropy = False"),
        (
            {"use_vllm": True, "vllm_importance_sampling_mode": "word_mask"},
            "write one of token_truncate, token_mask, sequence_truncate, sequence_mask",
        ),
        (
            {"use_vllm": True, "vllm_importance_sampling_mode": "token_mask", "loss_type": "vespo"},
            "into its own weight",
        ),
    ],
    ids=str,
)
def test_what_no_slot_says_is_refused(tmp_path: Path, keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match="write") as error:
        objective_of(tiny.settings(tmp_path, **keys))
    assert expected in str(error.value)


def test_a_correction_is_read_where_vllm_samples(tmp_path: Path) -> None:
    keys = {"vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_min": 0.5}
    assert objective_of(tiny.settings(tmp_path, **keys)).correction.kind == "none"
    corrected = objective_of(tiny.settings(tmp_path, use_vllm=True, **keys)).correction
    assert (corrected.kind, corrected.lower, corrected.upper) == ("interval", 0.5, 3.0)
    truncated = objective_of(
        tiny.settings(tmp_path, use_vllm=True, vllm_importance_sampling_mode="token_truncate")
    ).correction
    assert (truncated.kind, truncated.level, truncated.minimum, truncated.maximum) == ("truncate", "decision", 0.0, 3.0)
    default = objective_of(tiny.settings(tmp_path, use_vllm=True)).correction
    assert (default.kind, default.by, default.weight, default.minimum, default.maximum) == (
        "mask",
        "product",
        "product",
        0.0,
        3.0,
    )
    bounds = {"vllm_importance_sampling_clip_min": 0.5, "vllm_importance_sampling_clip_max": None}
    member = objective_of(
        tiny.settings(tmp_path, use_vllm=True, vllm_importance_sampling_mode="sequence_truncate", **bounds)
    ).correction
    assert (member.kind, member.level, member.minimum, member.maximum) == ("truncate", "member", 0.5, float("inf"))


def test_masks_and_an_adaptive_entropy_are_read(tmp_path: Path) -> None:
    keys = {
        "use_adaptive_entropy": True,
        "entropy_coef": 0.02,
        "entropy_coef_min": 0.01,
        "entropy_coef_max": 0.3,
        "entropy_coef_delta": 0.004,
        "entropy_target": 1.5,
        "off_policy_mask_threshold": 0.4,
    }
    objective = objective_of(tiny.settings(tmp_path, **keys))
    assert objective.entropy == Threshold(initial=0.02, target=1.5, delta=0.004, low=0.01, high=0.3)
    assert objective.credit.off_policy_mask == OffPolicyMask(threshold=0.4)
    assert not list(contradictions(tiny.settings(tmp_path, **keys), objective))
    chosen = objective_of(tiny.settings(tmp_path, top_entropy_quantile=0.2))
    assert chosen.credit.top_entropy == TopEntropy(share=0.2)
    assert not list(contradictions(tiny.settings(tmp_path, top_entropy_quantile=0.2), chosen))


def test_the_default_bound_of_trls_cispo_is_taken_and_doubted(tmp_path: Path) -> None:
    objective = objective_of(tiny.settings(tmp_path, loss_type="cispo"))
    assert (objective.trust.kind, objective.trust.maximum) == ("cispo", 0.2)
    assert "write trust.maximum = 5.0" in "; ".join(doubts(objective, 2))
