"""One body of a test, on the CPU in `make test` and on a GPU in `make gpu`."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where the test computes; one that is asked for and not there is a failure, never a skip."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.fail("this test is for a CUDA device and PyTorch sees none here; `make test` leaves it out")
    return torch.device("cuda", 0) if request.param == "cuda" else torch.device("cpu")
