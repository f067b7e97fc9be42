"""Options of other systems on the command line."""

from __future__ import annotations


def test_a_sources_options_are_answered_with_ours(groupwise):
    ended = groupwise("train", "source_001_improved", "--grpo", "--grpo_clip_range", "0.1", "--lr", "5e-6")
    assert ended.status == 2
    assert ended.err.count("is written") == 3
    assert (
        "source 001's --grpo_clip_range 0.1 is written trust.kind=clip trust.low=0.1 trust.high=0.1"
        " train.updates_per_batch=2 here" in ended.err
    )


def test_an_option_that_nobody_has_is_refused_as_before(groupwise):
    ended = groupwise("train", "language", "--nothing")
    assert ended.status == 2
    assert "No such option: --nothing" in ended.err
