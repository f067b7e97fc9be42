"""The equations of all methods as plain text."""

from __future__ import annotations

import pytest

from groupwise.cli.methods import equation_lines, plain
from groupwise.objective.preset import method_names, read_method


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
