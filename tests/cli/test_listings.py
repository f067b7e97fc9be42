"""`experiments`: every shipped one, without loading anything heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from groupwise.cli.methods import equation_lines, plain
from groupwise.experiment.catalogue import find, shipped
from groupwise.experiment.schema import file_schema
from groupwise.objective.preset import method_names, read_method


def listed(text: str) -> list[str]:
    return [name for name in shipped() if any(line.split()[:1] == [name] for line in text.splitlines())]


def test_all_lists_the_experiments_of_the_sources_too(groupwise):
    ended = groupwise("experiments")
    assert ended.status == 0, ended
    assert listed(ended.out) == [name for name in shipped() if not name.startswith("source_")]
    assert "17 more" in ended.out
    ended = groupwise("experiments", "--all")
    assert (ended.status, listed(ended.out)) == (0, shipped()), ended
    assert "--all" not in ended.out


def test_listing_and_help_start_without_torch():
    code = (
        "import sys; from groupwise.cli.app import app\n"
        "for arguments in (['experiments'], ['--help'], ['train', '--help']): app(arguments, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


# `methods`: the list by slot, one in full, and JSON.


def test_the_list_names_every_method_and_its_slots(groupwise):
    ended = groupwise("methods")
    assert ended.status == 0, ended
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.split()}
    assert set(method_names()) <= set(rows)
    assert "clip 0.2/0.28" in rows["dapo"]
    assert "2503.14476" in rows["dapo"]
    assert "asymmetric_clip 0.3/0.1" in rows["asymmetric_clip"]
    assert "constant 0 " in rows["topr"]
    assert "dppo 0.15/20 " in rows["dppo_tv"]


def test_a_narrow_terminal_gets_two_lines_a_method(groupwise, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    from groupwise.cli import output

    output.console().width = 80
    ended = groupwise("methods")
    output.console.cache_clear()
    assert "dapo  2503.14476\n  z_score | token | clip 0.2/0.28 | token_mean | resample\n" in ended.out


def test_one_method_is_printed_in_full(groupwise):
    ended = groupwise("methods", "gspo+tis")
    assert ended.status == 0, ended
    for part in (
        "Maximises",
        "arXiv 2507.18071",
        "@misc{gspo,",
        "Difference from grpo",
        "ratio.kind",
        "correction.kind",
    ):
        assert part in ended.out
    assert "did you mean gspo" in groupwise("methods", "gsp").err


def test_json_holds_every_slot_of_every_method(groupwise):
    found = json.loads(groupwise("methods", "--json").out)
    assert [method["name"] for method in found if not method["name"].startswith("+")] == list(method_names())
    one = json.loads(groupwise("methods", "dapo", "--json").out)
    assert one["objective"]["trust"] == {"kind": "clip", "low": 0.2, "high": 0.28}
    assert one["paper"]["arxiv"] == "2503.14476"


def test_a_method_in_full_fits_a_narrow_terminal_and_speaks_plainly(groupwise):
    from groupwise.cli import output

    output.console().width = 80
    ended = groupwise("methods", "flow_grpo+mis")
    output.console.cache_clear()
    assert max(len(line) for line in ended.out.partition("@misc")[0].splitlines()) <= 80
    shown = " ".join(ended.out.split())
    assert "Maximises 1/B Σ_i 1/n_i Σ_t[k_it min(r_it A_i, clip(r_it, 1-ε, 1+ε) A_i)" in shown
    assert "Jie Liu, Gongye Liu" in shown
    assert "and 3 more, 2025" in shown
    assert "k_it = q_it 1[Π_s q_is ≤ 2]" in shown
    assert "Overlay +mis: Masked importance sampling" in shown
    assert "Jiacai Liu" in shown
    assert "@misc{mis," in ended.out
    assert "\\frac" not in shown


def test_an_overlay_alone_and_wrong_names_say_what_to_write(groupwise):
    assert "did you mean dapo+tis?" in groupwise("methods", "tis").err
    assert "did you mean tis?" in groupwise("methods", "dapo+ti").err
    assert "did you mean gspo" in groupwise("methods", "GSPO").err.lower()


def test_json_holds_citation_and_difference(groupwise):
    one = json.loads(groupwise("methods", "dapo+tis", "--json").out)
    assert one["bibtex"].startswith("@misc{dapo,")
    assert one["difference_from_grpo"]["trust.high"] == [0.2, 0.28]
    assert one["difference_from_grpo"]["correction.kind"] == ["none", "truncate"]


def test_an_overlay_by_itself(groupwise):
    shown = " ".join(groupwise("methods", "+seq_mis").out.split())
    assert "It weighs S_it ← k_it S_it where k_it = Q_i 1[Q_i ≤ 2]" in shown
    assert "weight = product" in shown
    assert "method=dapo+seq_mis" in shown
    assert "did you mean tis?" in groupwise("methods", "+ti").err


@pytest.mark.slow
def test_overlays_stand_in_the_json_of_all(groupwise):
    records = {record["name"]: record for record in json.loads(groupwise("methods", "--json").out)}
    assert {"grpo", "+tis", "+mis", "+icepop", "+seq_tis", "+seq_mis", "+geo_rs"} <= set(records)
    for name in ("+tis", "+mis", "+icepop"):
        record = records[name]
        assert all(
            record[key]
            for key in ("title", "equation", "deviations", "paper", "bibtex", "objective", "difference_from_grpo")
        )
        assert set(record["objective"]) == {"correction"}
    one = json.loads(groupwise("methods", "grpo+mis", "--json").out)
    assert "k_{i,t}" in one["equation"]
    assert [overlay["name"] for overlay in one["overlays"]] == ["+mis"]


# The equations of all methods as plain text.


@pytest.mark.parametrize("name", method_names())
def test_no_latex_is_left(name: str) -> None:
    for line in equation_lines(read_method(name).equation):
        text = plain(line)
        assert text
        assert "\\" not in text
        assert text.count("(") == text.count(")")


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (
            r"\bar r_{i,t}=\mathrm{sg}(\bar r_i)\frac{\pi_{i,t}}{\mathrm{sg}(\pi_{i,t})}",
            "r\u0304_it = sg(r\u0304_i) π_it/(sg(π_it))",
        ),
        (r"x=\log\frac{\pi_{ref}}{\pi}", "x = log(π_ref/π)"),
        (r"\varphi_i=e^{-(r_i-1)^2/(2\sigma^2)}", "φ_i = e^(-(r_i-1)^2/(2σ^2))"),
        (
            r"\varepsilon=\varepsilon_{pos}\ \mathrm{if}\ A_i>0\ \mathrm{else}\ \varepsilon_{neg}",
            "ε = ε_pos if A_i > 0 else ε_neg",
        ),
        ("r'_{i,t}=\\beta r_{i,t}+(1-\\beta)r'_{i,t-1}", "r'_it = β r_it+(1-β) r'_(i, t-1)"),
    ],
)
def test_by_hand(latex: str, text: str) -> None:
    assert plain(latex) == text


# `schema`: a JSON schema for editors.


def test_the_schema_is_printed_or_written(groupwise, tmp_path: Path):
    printed = json.loads(groupwise("schema").out)
    assert "domain" in printed["properties"]
    ended = groupwise("schema", "--out", tmp_path / "experiment.schema.json")
    assert "#:schema ./experiment.schema.json" in ended.out
    assert json.loads((tmp_path / "experiment.schema.json").read_text()) == printed


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(file_schema())
    return Draft202012Validator(file_schema())


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_fits_the_schema(name: str, validator: Draft202012Validator):
    assert [error.message for error in validator.iter_errors(tomllib.loads(find(name).path.read_text()))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tree", "fits"),
    [
        ({"extends": "language", "stages": {"grpo": {"num_steps": 20}}}, True),
        ({"extends": "language", "trust": {"high": 0.5}, "optimiser": {"learning_rate": {"start": 1e-3}}}, True),
        ({"stages": [{"name": "a", "num_steps": 3}]}, True),
        ({"train": {"num_stps": 3}}, False),
        ({"trust": {"kind": "clp"}}, False),
        ({"trust": {"kind": "gaussian", "low": 0.1}}, False),
        ({"train": {"group_size": "four"}}, False),
        ({"stages": {"grpo": {"steps": 20}}}, False),
        ({"domain": {"kind": "language", "rewards": {"a": {"kind": "exact_anser"}}}}, False),
    ],
)
def test_what_an_editor_marks(tree: dict[str, Any], fits: bool, validator: Draft202012Validator):
    assert validator.is_valid(tree) == fits


# What a real bash completes after `groupwise --install-completion`.


COMMAND = Path(sys.executable).with_name("groupwise")
SCRIPT = """
source <("$1" --show-completion bash)
COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); COMP_LINE="${*:2}"; COMP_POINT=${#COMP_LINE}
_groupwise_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


WORDS = [
    (["tr"], ["train"]),
    (["train", "language_k"], ["language_knights"]),
    (["train", "language", "train.gro"], ["train.group_size="]),
    # bash makes a word of the sign, and replaces what follows it.
    (["train", "language", "method", "=", "dual"], ["dual_clip"]),
    (["methods", "dapo+ice"], ["dapo+icepop"]),
    (["compare", "language", "--var"], ["--vary"]),
]


def completed_by_bash(words: list[str]) -> list[str]:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", str(COMMAND), "groupwise", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=True,
    )
    return ended.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"), [WORDS[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in WORDS[1:])]
)
def test_bash_completes_words(words: list[str], completed: list[str]) -> None:
    assert completed_by_bash(words) == completed


@pytest.mark.parametrize(("words", "completed"), WORDS)
def test_the_command_completes_words(
    groupwise, words: list[str], completed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bash calls it, with its words in the environment."""
    # A program that Python started as a module is called otherwise, as pytest was.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
    monkeypatch.setenv("_GROUPWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["groupwise", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert groupwise().out.split() == completed


# `version`: what is installed.


def test_versions_are_printed(groupwise):
    out = groupwise("version").out
    assert f"groupwise {version('groupwise')}\n" in out
    assert f"torch {version('torch')}\n" in out


def test_the_option_prints_the_version_alone(groupwise):
    from importlib.metadata import version

    ended = groupwise("--version")
    assert (ended.status, ended.out, ended.err) == (0, f"groupwise {version('groupwise')}\n", "")
