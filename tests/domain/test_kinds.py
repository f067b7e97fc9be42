"""Domains come in by their entry points: no room above names one of ours; an installation that has none says so."""

from __future__ import annotations

from groupwise.domain.callable import config_class


def test_the_kind_of_a_package_that_is_not_here_is_a_plain_domain() -> None:
    assert config_class("a kind of nobody").__name__ == "DomainConfig"
    assert config_class("language").sample_hint == "ask it something"
    assert config_class("restoration").sample_hint == "restore an image of the evaluation"
