from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.domain.language.source.tales import Tales


def test_clauses_and_connectives_as_asked():
    source = Tales(min_clauses=3, max_clauses=3, joined_share=1.0)
    for row in source.rows(20, seed=0):
        clauses = source.demonstration(row, seed=0)[0].removesuffix(" .").split(" . ")
        assert len(clauses) == 3
        assert clauses[0].startswith(row["who"])
        assert all(clause.split()[0] in source.connectives for clause in clauses[1:])
    assert all(word not in Tales(joined_share=0.0).demonstration(row, seed=0)[0].split() for word in source.connectives)


def test_the_source_has_4800_prompts_and_refuses_a_wrong_order():
    assert len(Tales().rows(10_000, seed=0)) == 12 * 8 * 10 * 5
    with pytest.raises(ValidationError, match="min_clauses = 4 is above max_clauses = 2"):
        Tales(min_clauses=4, max_clauses=2)
