from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.domain.language.config import Pretrained


def test_a_path_is_needed_and_travels_whole():
    model = Pretrained(path="a", dtype="bfloat16", attention="eager", revision="v1")
    assert model.model_dump(exclude_defaults=True) == {
        "path": "a",
        "dtype": "bfloat16",
        "attention": "eager",
        "revision": "v1",
    }
    with pytest.raises(ValidationError):
        Pretrained(path="")
