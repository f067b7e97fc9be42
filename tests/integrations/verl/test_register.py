from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.integrations.verl import register
from groupwise.objective import Objective

STAND_IN = """
POLICY, ADV_ESTIMATOR_REGISTRY = {}, {}
def register_policy_loss(name):
    return lambda function: POLICY.setdefault(name, function)
def register_adv_est(name):
    def kept(function):
        if name in ADV_ESTIMATOR_REGISTRY and ADV_ESTIMATOR_REGISTRY[name] != function:
            raise ValueError(f"Adv estimator {name} has already been registered")
        ADV_ESTIMATOR_REGISTRY[name] = function
        return function
    return kept
"""


@pytest.fixture
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """verl's two registries, as its 0.9.1 has them; the real ones are exercised by tests/oracles/record_verl.py."""
    folder = tmp_path / "verl" / "trainer" / "ppo"
    folder.mkdir(parents=True)
    (folder / "core_algos.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name == "verl" or name.startswith("verl.")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.usefixtures("registries")
def test_both_registries_and_the_overrides_to_write() -> None:
    said = register("dapo", {"trust.high": 0.3})
    algorithms = sys.modules["verl.trainer.ppo.core_algos"]
    assert set(algorithms.POLICY) == set(algorithms.ADV_ESTIMATOR_REGISTRY) == {"groupwise_dapo_edited"}
    assert said == [
        "actor_rollout_ref.actor.policy_loss.loss_mode=groupwise_dapo_edited",
        "algorithm.adv_estimator=groupwise_dapo_edited",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "actor_rollout_ref.actor.use_kl_loss=false",
        "actor_rollout_ref.actor.entropy_coeff=0.0",
        "algorithm.use_kl_in_reward=false",
        "algorithm.filter_groups.enable=true",
    ]
    # Once more, in a notebook say.
    register("dapo", {"trust.high": 0.3})
    assert register(Objective.preset("grpo"), name="mine")[:2] == [
        "actor_rollout_ref.actor.policy_loss.loss_mode=mine",
        "algorithm.adv_estimator=mine",
    ]
    with pytest.raises(ValueError, match="edits change a preset by its name"):
        register(Objective.preset("grpo"), {"trust.high": 0.3})


@pytest.mark.usefixtures("registries")
def test_a_loss_alone_leaves_the_advantage_to_verl() -> None:
    with pytest.raises(ValueError, match=r"write register\(\.\.\., estimator=False\)"):
        register("gdpo")
    said = register("gdpo", estimator=False)
    algorithms = sys.modules["verl.trainer.ppo.core_algos"]
    assert set(algorithms.POLICY) == {"groupwise_gdpo"}
    assert not algorithms.ADV_ESTIMATOR_REGISTRY
    assert not [line for line in said if "adv_estimator" in line]


def test_neither_library_is_imported_unasked_and_an_absent_one_is_named() -> None:
    code = """
import sys
import groupwise, groupwise.objective, groupwise.integrations
from groupwise.integrations.verl import register
print([name for name in ("transformers", "trl", "verl", "datasets", "peft") if name in sys.modules])
sys.modules["verl"] = None
register("grpo")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
    assert "write: pip install verl==0.9.1" in found.stderr
