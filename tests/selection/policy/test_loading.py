"""The policy's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.selection.policy.test_choices import network

from groupwise.config import ConfigError
from groupwise.streams import Streams
from groupwise_selection.policy.config import Pretrained
from groupwise_selection.policy.network import open_policy, save


def opened(folder: Path, size: int = 3, stop: bool = False) -> torch.nn.Module:
    return open_policy(Pretrained(path=str(folder)), size, stop, Streams(0), torch.device("cpu"))


def test_a_saved_policy_comes_back_bit_by_bit(tmp_path: Path) -> None:
    made = network()
    save(made, tmp_path, shots=4, order="first_pick_last")
    found = opened(tmp_path)
    assert all(torch.equal(value, found.state_dict()[name]) for name, value in made.state_dict().items())
    table = json.loads((tmp_path / "policy.json").read_text())
    assert table["order"] == "first_pick_last"
    assert table["shots"] == 4
    assert table["embedding_size"] == 3


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    save(network(), tmp_path)
    with pytest.raises(ConfigError, match="embeddings of 3 numbers, and these data have 5"):
        opened(tmp_path, size=5)
    with pytest.raises(ConfigError, match=r"domain\.stop = false"):
        opened(tmp_path, stop=True)
    with pytest.raises(ConfigError, match=r"no policy\.json"):
        opened(tmp_path / "nowhere")
