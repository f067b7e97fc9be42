"""That no loss balances the experts is said, of the families that have experts and of no others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.causal_lm.test_families import COMMON, DECODERS, RECURRENT
from transformers import CONFIG_MAPPING

from groupwise.causal_lm.backbone import router_remark


@pytest.mark.parametrize("family", [*DECODERS, *RECURRENT])
def test_only_mixtures_of_experts_get_the_remark_on_routers(family: str) -> None:
    if family not in CONFIG_MAPPING:
        pytest.skip("not in this transformers")
    sizes: dict[str, Any] = {**DECODERS, **RECURRENT}[family]
    said = router_remark(CONFIG_MAPPING[family](**sizes, **COMMON))
    assert bool(said) == (
        family in {"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "jamba", "qwen3_next"}
    )
    if family == "mixtral":
        assert "a mixture of 4 experts, whose router learns from the objective alone" in said
        assert "router_aux_loss_coef = 0.001 in its config.json has no effect" in said
