"""`callable`: what a class of one's own gives, what it states of itself, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from tests.objective.small import gradient, member_ratios
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.trust import CallableRegion, Gaussian
from groupwise.records import Rollouts

HERE = "tests.objective.trust.test_callable"


@dataclass(frozen=True)
class Line:
    """`S = slope rho A`, a class that knows nothing of ours."""

    scope: ClassVar[str] = "member"
    reads: ClassVar[tuple[str, ...]] = ("behaviour_log_prob",)
    discrete_only: ClassVar[str] = "write another trust.kind"
    slope: float = 2.0

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(self.slope * log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class Silent:
    """Called, and says nothing of its scope."""

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        raise AssertionError


class Mute:
    """Cannot be called."""

    scope = "decision"


def preset(path: str, settings: Mapping[str, Any] | None = None) -> Objective:
    return Objective.preset(
        "bnpo",
        **{"trust.kind": "callable", "trust.path": path}
        | ({"trust.settings": settings} if settings is not None else {}),
    )


def test_a_region_of_ours_by_path_is_that_region() -> None:
    given = member_ratios([1.5, 0.9], advantage=-1.0)
    ours, by_path = (
        Gaussian(sigma=0.3),
        CallableRegion(path="groupwise.objective.trust.gaussian:Gaussian", settings={"sigma": 0.3}),
    )
    expected, found = ours(given.log_ratio, given), by_path(given.log_ratio, given)
    assert found.value.equal(expected.value)
    assert set(found.statistics) == set(expected.statistics)


def test_a_class_of_ones_own_is_built_with_its_settings_and_asked_what_it_reads() -> None:
    objective = preset(f"{HERE}:Line", {"slope": 3.0})
    given = member_ratios([2.0])
    assert gradient(objective.trust(given.log_ratio, given).value, given) == [[pytest.approx(6.0)]]
    assert objective.scope == "member"
    assert objective.requires_rollouts == {"behaviour_log_prob"}
    assert objective.discrete_only is not None
    state, old = objective.init(), torch.full((2, 1), -1.0)
    with pytest.raises(ValueError, match="behaviour_log_prob is missing"):
        objective.prepare(
            Rollouts(torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), old, {"r": [1.0, 0.0]}), state
        )


def test_settings_are_part_of_the_configuration() -> None:
    objective = preset(f"{HERE}:Line", {"slope": 3.0})
    assert objective == preset(f"{HERE}:Line", {"slope": 3.0}) != preset(f"{HERE}:Line", {"slope": 4.0})
    assert Objective.model_validate_json(objective.model_dump_json()) == objective


@pytest.mark.parametrize(
    ("path", "settings", "said"),
    [
        ("nowhere", {}, "is no import path; write package.module:name"),
        ("no_such_module:Region", {}, "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Lin", {}, "has no class 'Lin'; its classes: Line, Mute, Silent"),
        (f"{HERE}:preset", {}, "has no class 'preset'"),
        (f"{HERE}:Line", {"slop": 1.0}, "does not take settings"),
        (f"{HERE}:Mute", {}, "cannot be called"),
        (f"{HERE}:Silent", {}, "state how much one term reads"),
        (
            "groupwise.objective.trust.gaussian:Gaussian",
            {"sigma": -1.0},
            "settings.sigma = -1.0: must be greater than 0",
        ),
        ("groupwise.objective.trust.gaussian:Gaussian", {"sigm": 1.0}, "did you mean sigma"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_read(path: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"trust") as caught:
        preset(path, settings)
    assert said in str(caught.value)
