"""`experiments`: every shipped one, without loading anything heavy."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from groupwise.experiment.catalogue import find, shipped
from groupwise.experiment.schema import file_schema
from groupwise.objective.preset import method_names


def listed(text: str) -> list[str]:
    return [name for name in shipped() if any(line.split()[:1] == [name] for line in text.splitlines())]


def test_all_lists_the_experiments_of_the_sources_too(groupwise):
    ended = groupwise("experiments")
    assert ended.status == 0, ended
    assert listed(ended.out) == [name for name in shipped() if not name.startswith("source_")]
    num_sources = sum(name.startswith("source_") for name in shipped())
    assert f"{num_sources} more" in ended.out
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


# `methods`: the list by need, one in full, and JSON.


def test_the_list_names_every_method_under_its_need(groupwise):
    ended = groupwise("methods")
    assert ended.status == 0, ended
    lines = ended.out.splitlines()
    places = {line.split()[0]: place for place, line in reversed(list(enumerate(lines))) if line.split()}
    assert set(method_names()) <= set(places)
    assert "2503.14476" in lines[places["dapo"]]
    # A first run comes first, and of the methods those last that no paper has published.
    unpublished = lines.index("Of the five sources, and of no paper")
    assert places["grpo"] < places["gspo"] < unpublished < places["aggressive"]
    assert lines.index("Several rewards of different size") + 1 == places["gdpo"]


def test_json_holds_every_slot_citation_and_difference(groupwise):
    found = json.loads(groupwise("methods", "--json").out)
    assert [method["name"] for method in found if not method["name"].startswith("+")] == list(method_names())
    one = json.loads(groupwise("methods", "dapo", "--json").out)
    assert one["objective"]["trust"] == {"kind": "clip", "low": 0.2, "high": 0.28}
    assert one["paper"]["arxiv"] == "2503.14476"
    one = json.loads(groupwise("methods", "dapo+tis", "--json").out)
    assert one["bibtex"].startswith("@misc{dapo,")
    assert one["difference_from_grpo"]["trust.high"] == [0.2, 0.28]
    assert one["difference_from_grpo"]["correction.kind"] == ["none", "truncate"]


def test_a_method_in_full_fits_a_narrow_terminal_and_speaks_plainly(groupwise):
    from groupwise.cli import output

    output.console().width = 80
    ended = groupwise("methods", "flow_grpo+mis")
    output.console.cache_clear()
    assert max(len(line) for line in ended.out.partition("@misc")[0].splitlines()) <= 80
    shown = " ".join(ended.out.split())
    assert r"Maximises \frac{1}{B}\sum_i\frac{1}{n_i}" in shown
    assert "Jie Liu, Gongye Liu" in shown
    assert "and 3 more, 2025" in shown
    assert r"where k_{i,t}=q_{i,t}" in shown
    assert "Difference from grpo" in shown
    assert "Overlay +mis: Masked importance sampling" in shown
    assert "Jiacai Liu" in shown
    assert "@misc{mis," in ended.out


def test_an_overlay_alone_and_wrong_names_say_what_to_write(groupwise):
    assert "did you mean dapo+tis?" in groupwise("methods", "tis").err
    assert "did you mean gspo" in groupwise("methods", "GSPO").err.lower()


def test_an_overlay_by_itself(groupwise):
    shown = " ".join(groupwise("methods", "+seq_mis").out.split())
    assert "It weighs S_{i,t}" in shown
    assert "weight = product" in shown
    assert "method=dapo+seq_mis" in shown
    assert "did you mean tis?" in groupwise("methods", "+ti").err


# `schema`: a JSON schema for editors.


@pytest.mark.slow
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


WORDS = [
    (["tr"], ["train"]),
    (["train", "language_k"], ["language_knights"]),
    (["train", "language", "train.gro"], ["train.group_size="]),
    # bash makes a word of the sign, and replaces what follows it.
    (["train", "language", "method", "=", "dual"], ["dual_clip"]),
    (["methods", "dapo+ice"], ["dapo+icepop"]),
    (["compare", "language", "--var"], ["--vary"]),
]


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


def test_the_option_prints_the_versions(groupwise):
    ended = groupwise("--version")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"groupwise {version('groupwise')}\npython 3")
    assert f"\ntorch {version('torch')}\n" in ended.out
