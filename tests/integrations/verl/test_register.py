import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise_trainers.verl import policy_loss, register
from groupwise_trainers.verl.__main__ import main
from groupwise_trainers.verl.register import load, register_all

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


@pytest.mark.slow
def test_neither_library_is_imported_unasked_and_an_absent_one_is_named() -> None:
    code = """
import sys
import groupwise, groupwise.objective, groupwise_trainers
from groupwise.config import ConfigError
from groupwise_trainers.verl import policy_loss, register
from groupwise_trainers.verl.__main__ import main
from groupwise_trainers.verl.register import load, register_all
print([name for name in ("transformers", "trl", "verl", "datasets", "peft") if name in sys.modules])
sys.modules["verl"] = None
register("grpo")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
    assert "write: pip install verl==0.9.1" in found.stderr


@pytest.mark.usefixtures("registries")
def test_the_plugin_registers_every_method_and_the_edited_ones() -> None:
    names = register_all({"GROUPWISE_VERL": "gspo trust.high=0.0005; dapo"})
    core = sys.modules["verl.trainer.ppo.core_algos"]
    assert set(names) == set(core.POLICY) == set(core.ADV_ESTIMATOR_REGISTRY)
    assert {f"groupwise_{name}" for name in method_names()} | {"groupwise_gspo_edited"} == set(names)
    log_prob = torch.full((2, 2), -1.0, requires_grad=True)
    config = SimpleNamespace(
        loss_agg_mode="seq-mean-token-mean", use_kl_loss=False, entropy_coeff=0, global_batch_info={}
    )
    value, _ = core.POLICY["groupwise_gspo"](
        old_log_prob=torch.full((2, 2), -1.0),
        log_prob=log_prob,
        advantages=torch.tensor([[1.0, 1.0], [-0.5, -0.5]]),
        response_mask=torch.ones(2, 2),
        config=config,
    )
    assert value.item() == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="'clip_cov' looks at a whole optimiser step, and verl gives"):
        core.POLICY["groupwise_clip_cov"](config=config)
    register_all({})


@pytest.mark.usefixtures("registries")
def test_a_broken_variable_is_told_where_verl_would_hide_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GROUPWISE_VERL", "gspo trust.high")
    with pytest.raises(ConfigError):
        load()
    assert "not registered with verl: GROUPWISE_VERL: 'trust.high' is no key=value" in caplog.text


def test_the_module_prints_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gspo", "trust.high=0.0005"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("export GROUPWISE_VERL='gspo trust.high=0.0005'")
    assert lines[1] == "actor_rollout_ref.actor.policy_loss.loss_mode=groupwise_gspo_edited"
    assert main(["gspo"]) == 0
    assert capsys.readouterr().out.startswith("actor_rollout_ref.actor.policy_loss.loss_mode=groupwise_gspo\n")
    assert [main(words) for words in (["clip_cov"], ["gspoo"], ["gspo", "trust.high"], [])] == [2, 2, 2, 2]
    said = capsys.readouterr().err
    assert all(part in said for part in ("whole optimiser step", "gspo", "no key=value"))


def test_another_version_is_one_line(registries: Path) -> None:
    core = registries / "verl" / "trainer" / "ppo" / "core_algos.py"
    core.write_text("def register_adv_est(name):\n    return lambda function: function\n")
    line = (
        r"^groupwise_trainers\.verl needs verl 0\.9\.1, and the one that is installed has no"
        r" ADV_ESTIMATOR_REGISTRY, register_policy_loss in verl\.trainer\.ppo\.core_algos; write: pip install verl"
    )
    with pytest.raises(ImportError, match=line):
        register("gspo")


def test_a_configuration_of_another_version_is_one_line() -> None:
    log_prob = torch.full((1, 2), -1.0)
    config = SimpleNamespace(loss_agg_mode="token-mean", use_kl_loss=False, entropy_coeff=0)
    with pytest.raises(
        ValueError, match=r"SimpleNamespace, which has no global_batch_info, as those of verl 0\.9 have"
    ):
        policy_loss(Objective.preset("dapo"))(log_prob, log_prob, log_prob, torch.ones(1, 2), config=config)
