"""A class at a path: its settings are stated whole, validated once, and told from everything that has another place."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from groupwise.config import CalledFromPath, Config, ConfigError, restrict_code, validate
from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.trust import CallableTrust

HERE = "tests.config.test_from_path"


class Line(TrustSlot):
    """`S = slope rho A`, below a ceiling where there is one."""

    scope: ClassVar[str] = "decision"
    slope: float = 2.0
    ceiling: float | None = 5.0

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(self.slope * log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class Holder(Config):
    trust: CallableTrust


class Maker(Config):
    made: CalledFromPath


def configured(**settings: Any) -> CallableTrust:
    return validate(Holder, {"trust": {"path": f"{HERE}:Line", "settings": settings}}).trust


def test_a_configuration_states_every_setting() -> None:
    trust = configured(ceiling=None)
    assert trust.settings == {"slope": 2.0, "ceiling": None}
    assert trust == configured(slope=2.0, ceiling=None) != configured()
    objective = Objective.preset("bnpo", **{"trust.kind": "callable", "trust.path": f"{HERE}:Line"})
    assert json.loads(objective.model_dump_json())["trust"]["settings"] == {"slope": 2.0, "ceiling": 5.0}
    assert Objective.model_validate_json(objective.model_dump_json()) == objective


def test_settings_are_not_validated_at_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    trust, validated, read = configured(), [], Line.model_validate_json
    monkeypatch.setattr(Line, "model_validate_json", lambda text: validated.append(text) or read(text))
    _ = [(trust.piece, trust.scope, trust.reads) for _ in range(3)]
    assert len(validated) == 1


def test_a_copy_is_configured_by_its_own_settings() -> None:
    trust = configured(slope=3.0)
    assert trust.piece.slope == 3.0
    assert trust.model_copy(update={"settings": {"slope": 4.0}}).piece.slope == 4.0
    assert trust.model_copy().piece == trust.piece
    assert trust == configured(slope=3.0), "what was asked before changes no comparison"


def test_what_was_made_computes_nothing_where_its_code_may_not_run() -> None:
    trust = configured()
    assert isinstance(trust.piece, Line)
    with restrict_code(), pytest.raises(AssertionError, match="only read"):
        trust(torch.zeros(1, 1), None)
    with restrict_code():
        assert configured(slpe=1).settings == {"slpe": 1}


def test_several_wrong_settings_are_told_each_under_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        configured(slpe=1.0, ceiling="high")
    assert sorted(map(str, caught.value.problems)) == [
        'trust.settings.ceiling = "high": must be a valid number',
        "trust.settings.slpe = 1.0: unknown key; allowed: slope, ceiling; did you mean slope?",
    ]


@pytest.mark.parametrize(
    ("place", "table"),
    [
        ("environment", {"kind": "custom", "path": "a:b"}),
        ("model", {"kind": "network", "network": {"kind": "custom", "path": "a:b"}}),
    ],
)
def test_the_kind_of_earlier_versions_names_the_one_of_today(place: str, table: dict[str, Any]) -> None:
    from groupwise.domain.language.config import LanguageConfig
    from groupwise_images.restoration.config import RestorationConfig

    domain: type[Config] = LanguageConfig if place == "environment" else RestorationConfig
    with pytest.raises(ConfigError, match=r'kind = "custom": unknown kind; .*did you mean callable\?'):
        validate(domain, {place: table})


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("slope", "the settings of {path} stand in trust.settings; write trust.settings.slope"),
        ("width", "the settings of {path} stand in trust.settings: slope, ceiling"),
    ],
)
def test_a_setting_beside_the_path_is_told_its_place(key: str, answer: str) -> None:
    path = f"{HERE}:Line"
    with pytest.raises(ConfigError) as raised:
        validate(Holder, {"trust": {"path": path, key: 0.1}})
    assert str(raised.value) == f"trust.{key} = 0.1: unknown key; {answer.format(path=path)}"


def test_a_setting_beside_a_path_whose_code_may_not_run_is_told_its_place() -> None:
    with restrict_code(), pytest.raises(ConfigError, match=r"stand in trust.settings; write trust.settings.slope$"):
        validate(Holder, {"trust": {"path": f"{HERE}:Line", "slope": 0.1}})


def test_an_argument_beside_the_path_is_told_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"depth = 2: unknown key; the arguments of a:B .* write made.arguments.depth$"
    ):
        validate(Maker, {"made": {"path": "a:B", "depth": 2}})
