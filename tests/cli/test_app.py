"""The command as a whole."""

from __future__ import annotations


def test_every_verb_is_there_and_explains_itself(groupwise):
    out = groupwise("--help").out
    verbs = [
        "train",
        "resume",
        "check",
        "evaluate",
        "sample",
        "compare",
        "doctor",
        "export",
        "experiments",
        "methods",
        "schema",
        "version",
    ]
    assert all(verb in out for verb in verbs)
    for verb in verbs:
        ended = groupwise(verb, "--help")
        assert (ended.status, ended.err) == (0, "")
        assert f"groupwise {verb}" in ended.out


def test_an_unknown_verb_and_option_are_refused(groupwise):
    assert groupwise("trian").status == 2
    assert groupwise("train", "language", "--sed", 1).status == 2
