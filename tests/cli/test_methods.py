"""`methods`: the list by slot, one in full, and JSON."""

from __future__ import annotations

import json

import pytest

from groupwise.objective.preset import method_names


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
