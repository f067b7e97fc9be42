"""Methods as data: names, overlays, edits and what they changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.laws import SLOTS

from groupwise.config import ConfigError
from groupwise.objective import Objective, preset
from groupwise.objective.preset import method_names, read_method


@pytest.mark.parametrize("name", method_names())
def test_every_preset_states_every_slot_and_its_paper(name: str) -> None:
    method = read_method(name)
    assert set(SLOTS) <= set(method.objective), f"{name} leaves {sorted(set(SLOTS) - set(method.objective))} unstated"
    assert method.paper.arxiv or method.paper.note
    assert method.title
    assert method.equation
    assert f"@misc{{{name}," in method.paper.bibtex(name)
    assert Objective.preset(name).name == name


def test_an_edit_is_named_and_printed() -> None:
    edited = Objective.preset("dapo", **{"trust.high": 0.3})
    assert edited.name == "dapo+edited"
    assert Objective.preset("dapo", **{"trust.high": 0.28}).name == "dapo"


def test_a_changed_kind_restarts_from_its_own_defaults() -> None:
    edited = Objective.preset("dapo", **{"trust.kind": "gaussian", "trust.sigma": 0.3})
    assert edited.trust.model_dump() == {"kind": "gaussian", "sigma": 0.3}


def test_an_overlay_changes_the_correction_alone() -> None:
    plain, overlaid = Objective.preset("dapo"), Objective.preset("dapo+tis")
    assert overlaid.name == "dapo+tis"
    assert overlaid.correction.kind == "truncate"
    assert overlaid.model_copy(update={"correction": plain.correction, "name": "dapo"}) == plain


@pytest.mark.parametrize(("name", "near"), [("dappo", "dapo"), ("dapo+tiss", "tis")])
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        Objective.preset(name)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"method = 'mine.toml': there is no file mine.toml; write the path"):
        Objective.preset("mine.toml")


def test_the_order_of_overrides_does_not_matter() -> None:
    for keys in ({"trust.kind": "gaussian", "trust.sigma": 0.3}, {"trust.sigma": 0.3, "trust.kind": "gaussian"}):
        assert Objective.preset("dapo", **keys).trust.model_dump() == {"kind": "gaussian", "sigma": 0.3}
    with pytest.raises(ConfigError, match="as a whole and in parts"):
        Objective.preset("dapo", **{"trust.sigma": 0.3, "trust": {"kind": "gaussian"}})
    override = {"kind": "gaussian"}
    with pytest.raises(ConfigError, match="trust: is given as a whole and in parts"):
        Objective.preset("dapo", **{"trust": override, "trust.sigma": 0.3})
    assert override == {"kind": "gaussian"}, "the caller's table stays the caller's"
    with pytest.raises(
        ConfigError, match=r"objective.trust.high: these are keys of the objective already; write trust.high"
    ):
        Objective.preset("dapo", **{"objective.trust.high": 0.3})


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (
            "summary =",
            "sumary =",
            r"methods/mine.toml.*sumary = .*unknown key; allowed: title, summary.*did you mean summary",
        ),
        (
            "low = 0.2",
            "lwo = 0.2",
            r"method mine: trust.lwo = 0.2: unknown key; allowed: kind, low, high; did you mean low",
        ),
        ("[objective.trust]", "[objective.trsut]", r"trsut = .*unknown key; .*did you mean trust"),
        ('kind = "clip"', 'kind = "clp"', r'trust.kind = "clp": unknown kind; .*did you mean clip'),
        ('kind = "clip"', "kind = clip", r"mine.toml: not valid TOML.*line"),
    ],
)
def test_a_preset_file_with_a_mistake_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, words: str
) -> None:
    text = (preset._METHODS / "grpo.toml").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "mine.toml").write_text(text.replace(right, wrong, 1), encoding="utf-8")
    monkeypatch.setattr(preset, "_METHODS", tmp_path)
    monkeypatch.setattr(preset, "method_names", lambda: ("mine",))
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        preset.resolve("mine", {})


@pytest.mark.parametrize("name", ["dapo+tis+mis", "dapo+tis+tis"])
def test_two_overlays_of_one_slot_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"the overlays 'tis' and '(mis|tis)' both set correction, and only one can hold; .*correction.truncate",
    ):
        Objective.preset(name)
