"""Registering with SkyRL; its real registries, Ray among them, are exercised by `tests/oracles/record_skyrl.py`."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from groupwise.objective import Objective
from groupwise_trainers.skyrl import policy_loss, register

STAND_IN = """
class Registry:
    def __init__(self):
        self.functions = {}
    def list_available(self):
        return list(self.functions)
    def unregister(self, name):
        del self.functions[name]
    def register(self, name, function):
        if name in self.functions:
            raise ValueError(f"'{name}' already registered")
        self.functions[name] = function
PolicyLossRegistry, AdvantageEstimatorRegistry = Registry(), Registry()
"""


@pytest.fixture
def skyrl_registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[set[str]]]:
    folder = tmp_path / "skyrl" / "backends" / "skyrl_train" / "utils"
    folder.mkdir(parents=True)
    (folder / "ppo_utils.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name == "skyrl" or name.startswith("skyrl.")]:
        monkeypatch.delitem(sys.modules, name)

    def names() -> list[set[str]]:
        module = sys.modules["skyrl.backends.skyrl_train.utils.ppo_utils"]
        return [set(registry.functions) for registry in (module.PolicyLossRegistry, module.AdvantageEstimatorRegistry)]

    return names


def test_both_registries_and_the_overrides_to_write(skyrl_registries: Callable[[], list[set[str]]]) -> None:
    lines = register("dapo", {"trust.high": 0.3})
    assert skyrl_registries() == [{"groupwise_dapo_edited"}, {"groupwise_dapo_edited"}]
    assert lines == [
        "trainer.algorithm.policy_loss_type=groupwise_dapo_edited",
        "trainer.algorithm.advantage_estimator=groupwise_dapo_edited",
        "trainer.algorithm.loss_reduction=token_mean",
        "trainer.algorithm.use_kl_loss=false",
        "trainer.algorithm.use_kl_in_reward=false",
        "trainer.algorithm.use_entropy_loss=false",
        "trainer.algorithm.advantage_batch_normalize=false",
        "trainer.algorithm.zero_variance_filter=false",
        "trainer.algorithm.off_policy_correction.tis_ratio_type=null",
        "trainer.algorithm.off_policy_correction.sequence_mask_metric=null",
        "trainer.algorithm.dynamic_sampling.type=filter",
    ]
    register("dapo", {"trust.high": 0.3})
    register(Objective.preset("grpo"), name="mine", estimator=False)
    assert skyrl_registries() == [{"groupwise_dapo_edited", "mine"}, {"groupwise_dapo_edited"}]
    with pytest.raises(ValueError, match="edits change a preset by its name"):
        register(Objective.preset("grpo"), {"trust.high": 0.3})


def test_without_skyrl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(name for name in sys.modules if name.startswith("skyrl.")), "skyrl"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="write: pip install skyrl"):
        register("gspo")


def test_the_function_is_carried_to_workers_by_cloudpickle() -> None:
    from ray import cloudpickle

    carried = cloudpickle.loads(cloudpickle.dumps(policy_loss(Objective.preset("gspo"))))
    live, old = torch.full((2, 2), -1.0, requires_grad=True), torch.full((2, 2), -1.0)
    value, _ = carried(live, old, torch.tensor([[0.25, 0.25], [-0.125, -0.125]]), None, torch.ones(2, 2))
    assert value.item() == pytest.approx(-0.25)


@pytest.mark.usefixtures("skyrl_registries")
def test_another_version_is_one_line(tmp_path: Path) -> None:
    module = tmp_path / "skyrl" / "backends" / "skyrl_train" / "utils" / "ppo_utils.py"
    module.write_text("PolicyLossRegistry = None\n")
    line = r"needs skyrl 0\.3\.0, and the one that is installed has no AdvantageEstimatorRegistry in .*; write"
    with pytest.raises(ImportError, match=line):
        register("gspo")
