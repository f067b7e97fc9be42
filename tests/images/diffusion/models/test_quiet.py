"""What the libraries say while a model is loaded, and that they say it again afterwards."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from diffusers.utils import logging as of_diffusers
from transformers.utils import logging as of_transformers

from groupwise_images.diffusion.models.files import quiet


@pytest.mark.parametrize("room", [of_diffusers, of_transformers])
def test_as_before_even_after_an_error(room: Any) -> None:
    before = (room.get_verbosity(), room.is_progress_bar_enabled())
    with contextlib.suppress(KeyError), quiet():
        assert (room.get_verbosity(), room.is_progress_bar_enabled()) == (of_diffusers.ERROR, False)
        raise KeyError
    assert (room.get_verbosity(), room.is_progress_bar_enabled()) == before
