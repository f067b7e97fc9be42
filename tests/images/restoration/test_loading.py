from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.images.restoration.small import TABLE, domain, nudge

from groupwise.config import ConfigError, merge, validate
from groupwise.streams import Streams
from groupwise_images.restoration.loading import load, newest, open_network, read_weights, save
from groupwise_images.restoration.model import Network

LORA = {"r": 2, "alpha": 4}


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def network(**changes: Any) -> Network:
    return validate(Network, merge(TABLE["model"], changes), "test")


def opened(**changes: Any) -> torch.nn.Module:
    return open_network(network(**changes), Streams(0), torch.device("cpu"))


def shift(module: torch.nn.Module) -> None:
    """Moves what is trained."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.05 * parameter.requires_grad


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    module = opened(seed=11)
    save_file(module.state_dict(), tmp_path / "plain.safetensors")
    return tmp_path / "plain.safetensors"


def test_a_checkpoint_fills_the_network(checkpoint: Path) -> None:
    for name, value in opened(checkpoint=str(checkpoint)).state_dict().items():
        assert torch.equal(value, load_file(checkpoint)[name])


def test_an_adapter_is_in_place_before_the_weights_are_read_so_that_none_is_dropped(checkpoint: Path) -> None:
    """Defect 9 of the original: adapters wrapped after loading, so that names no longer fit and weights are silently
    left out.
    """
    plain, adapted = opened(checkpoint=str(checkpoint)), opened(checkpoint=str(checkpoint), lora=LORA)
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(plain(images), adapted(images), atol=1e-14)
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


def test_an_adapters_own_weights_are_read_too(tmp_path: Path) -> None:
    adapted = opened(lora=LORA)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter += 0.1
    save_file(adapted.state_dict(), tmp_path / "whole.safetensors")
    again = opened(lora=LORA, seed=99, checkpoint=str(tmp_path / "whole.safetensors"))
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert torch.equal(adapted(images), again(images))


def test_what_does_not_fit_is_listed(checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = load_file(checkpoint)
    more = tmp_path / "more.safetensors"
    save_file({**weights, "policy_head.weight": torch.zeros(2)}, more)
    with pytest.raises(ConfigError, match=r"unexpected policy_head.weight \(1 names\); write strict = false"):
        opened(checkpoint=str(more))
    opened(checkpoint=str(more), strict=False)
    assert "policy_head.weight" in caplog.text
    fewer = tmp_path / "fewer.safetensors"
    save_file({name: value for name, value in weights.items() if name != "last.bias"}, fewer)
    with pytest.raises(ConfigError, match=r"1 weights of the network are missing: last.bias; write strict = false"):
        opened(checkpoint=str(fewer))
    fresh, grown = opened(seed=3).state_dict(), opened(seed=3, checkpoint=str(fewer), strict=False).state_dict()
    assert all(torch.equal(grown[name], (fresh if name == "last.bias" else weights)[name]) for name in grown)
    assert not torch.equal(fresh["last.bias"], weights["last.bias"])
    num = len(weights)
    assert f"{num - 1} of {num} weights are read; as initialised stay last.bias; unexpected" in caplog.text
    save_file({"conv.weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ConfigError, match="no name fits, or give the checkpoint of this architecture"):
        opened(checkpoint=str(tmp_path / "foreign.safetensors"), strict=False)
    other = tmp_path / "other.safetensors"
    save_file({**weights, "last.bias": torch.zeros(7).double()}, other)
    with pytest.raises(ConfigError, match=r"1 weights have another shape: last.bias is \[7\], not \[1\]"):
        opened(checkpoint=str(other))


def test_the_newest_checkpoint_is_found_by_number(tmp_path: Path) -> None:
    """Defect 10 of the original: sorted as text, epoch 9 comes after epoch 19."""
    for name in ("epoch9.safetensors", "epoch19.safetensors", "epoch2.pt"):
        (tmp_path / name).touch()
    assert newest(tmp_path).name == "epoch19.safetensors"
    for name in ("epoch_21.safetensors", "epoch_21.pt", "._epoch99.pt", "notes.txt"):
        (tmp_path / name).touch()
    assert newest(tmp_path).name == "epoch_21.safetensors"
    with pytest.raises(ConfigError, match="no such file, and no folder with"):
        newest(tmp_path / "nothing")
    (tmp_path / "optimiser.pt").touch()
    with pytest.raises(
        ConfigError,
        match=r"files of several names \(epoch, optimiser\), none of them the newest; name the file",
    ):
        newest(tmp_path)


def test_pt_files_are_read_as_tensors_alone(tmp_path: Path) -> None:
    module = opened(seed=5)
    torch.save(
        {"state_dict": {f"module.{name}": value for name, value in module.state_dict().items()}, "epoch": 3},
        tmp_path / "a.pt",
    )
    assert torch.equal(opened(checkpoint=str(tmp_path / "a.pt")).last.bias, module.last.bias)
    marker = tmp_path / "marker"
    (tmp_path / "e.pt").write_bytes(pickle.dumps({"weight": Touch(marker)}))
    contents = {
        "b": {"state_dict": module},
        "f": {1: torch.zeros(1)},
        "c": [1, 2],
        "d": {"generator": {"a": torch.zeros(1)}, "epoch": 3},
    }
    for name, content in contents.items():
        torch.save(content, tmp_path / f"{name}.pt")
    (tmp_path / "h.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:700])
    for name, message in {
        "b": "it holds code or objects, none of which is run; where it was made, save network.state_dict",
        "e": "none of which is run",
        "f": "no table of tensors by name",
        "c": "it holds a list and no table of tensors by name",
        "d": r"it holds \['generator', 'epoch'\] and no table.*under one of state_dict, model_state_dict.*save network",
        "h": "h.pt': it (cannot be read|holds code)",
    }.items():
        with pytest.raises(ConfigError, match=message):
            read_weights(tmp_path / f"{name}.pt")
    assert not marker.exists()
    torch.save({name: value.to_sparse() for name, value in module.state_dict().items()}, tmp_path / "i.pt")
    with pytest.raises(ConfigError, match=r"its weights cannot be copied: .*sparse"):
        opened(checkpoint=str(tmp_path / "i.pt"))


OPTIMISER = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}


@pytest.mark.parametrize(
    ("begins", "around"),
    [
        ("", lambda weights: {"model_state_dict": weights, "optimizer_state_dict": OPTIMISER, "epoch": 3}),
        ("", lambda weights: {"params": {name: 0 * value for name, value in weights.items()}, "params_ema": weights}),
        ("", lambda weights: {"model": {"state_dict": weights}, "optimizer": OPTIMISER}),
        ("module.", lambda weights: {"params": weights}),
        ("_orig_mod.", lambda weights: weights),
        ("module._orig_mod.", lambda weights: weights),
        (
            "model.",
            lambda weights: {
                "state_dict": weights,
                "optimizer_states": [OPTIMISER],
                "pytorch-lightning_version": "2.5",
                "loops": {},
            },
        ),
    ],
)
def test_checkpoints_as_training_scripts_write_them(tmp_path: Path, begins: str, around: Any) -> None:
    weights = opened(seed=11).state_dict()
    torch.save(around({begins + name: value.half() for name, value in weights.items()}), tmp_path / "epoch.ckpt")
    for name, value in opened(checkpoint=str(tmp_path / "epoch.ckpt")).state_dict().items():
        assert torch.equal(value, weights[name].half().double())


def test_weights_of_a_whole_and_of_a_part_find_their_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrapped = {"network": {"kind": "callable", "path": "tests.images.restoration.odd_networks:Wrapped", "channels": 1}}
    plain = {"network": {"kind": "callable", "path": "tests.images.restoration.odd_networks:Plain", "channels": 1}}
    weights = opened(**plain, seed=5).state_dict()
    # A network with a part called `module` keeps its names.
    for number, names in enumerate(({f"module.{name}": value for name, value in weights.items()}, weights)):
        torch.save(names, tmp_path / f"{number}.pt")
        assert torch.equal(
            opened(**wrapped, checkpoint=str(tmp_path / f"{number}.pt")).module.first.weight, weights["first.weight"]
        )
    torch.save(
        {"state_dict": {**{f"net.{name}": value for name, value in weights.items()}, "loss.weight": torch.zeros(2)}},
        tmp_path / "2.pt",
    )
    with pytest.raises(ConfigError, match=r"unexpected loss.weight \(1 names\); write strict = false"):
        opened(**plain, checkpoint=str(tmp_path / "2.pt"))
    assert torch.equal(opened(**plain, checkpoint=str(tmp_path / "2.pt"), strict=False).last.bias, weights["last.bias"])
    assert "loss.weight" in caplog.text
    # One name with the beginning and without it: what begins as all the others is meant, wherever it stands.
    stray = {"first.weight": torch.zeros_like(weights["first.weight"])}
    torch.save({**{f"net.{name}": value for name, value in weights.items()}, **stray}, tmp_path / "4.pt")
    with pytest.raises(ConfigError, match=r"unexpected first.weight \(1 names\)"):
        opened(**plain, checkpoint=str(tmp_path / "4.pt"))
    assert torch.equal(
        opened(**plain, checkpoint=str(tmp_path / "4.pt"), strict=False).first.weight, weights["first.weight"]
    )
    torch.save(
        {f"{part}.{name}": value for name, value in weights.items() for part in ("net", "net_ema")}, tmp_path / "3.pt"
    )
    with pytest.raises(
        ConfigError, match=r"under net. and under net_ema. fit equally well; write those of one network alone"
    ):
        opened(**plain, checkpoint=str(tmp_path / "3.pt"), strict=False)


def test_a_trained_plain_network_gets_gates_that_begin_as_it(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gated = {"network": {"kind": "gated", "width": 4, "depth": 1}, "checkpoint": str(checkpoint)}
    with pytest.raises(ConfigError, match=r"missing head.weight, missing head.bias \(2 names\); write strict = false"):
        opened(**gated)
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert torch.equal(opened(**gated, strict=False)(images), opened(checkpoint=str(checkpoint))(images))
    assert "as initialised stay head.weight, head.bias" in caplog.text


def test_a_saved_folder_says_its_architecture_and_merges_the_adapter(tmp_path: Path) -> None:
    given = domain({"model": {"lora": LORA}})
    nudge(given)
    before = {name: value.clone() for name, value in given.module.state_dict().items()}
    save(given.module, given.config.model, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in given.module.state_dict().items())
    again = domain(table=merge(TABLE, {"model": {"kind": "pretrained", "path": str(tmp_path)}}))
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(again.module(images), given.module(images), atol=1e-12)
    assert json.loads((tmp_path / "network.json").read_text())["network"]["kind"] == "residual"
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_an_adapter_needs_layers(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"lora.target_modules = 'nothing' names no layer; the layers that can have an adapter are \['features.0",
    ):
        opened(lora={**LORA, "target_modules": "nothing"})
    with pytest.raises(
        ConfigError, match=r"lora.target_modules = '\('.*write a regular expression, or a list of endings"
    ):
        opened(lora={**LORA, "target_modules": "("})
    grouped = {"network": {"kind": "callable", "path": "tests.images.restoration.odd_networks:Grouped", "channels": 1}}
    # A grouped convolution cannot be merged, and `one` shares its weight with `two`.
    with pytest.raises(ConfigError, match=r"names depthwise, one; .* are \['first', 'last', 'project'\]"):
        opened(**grouped, lora={**LORA, "target_modules": ["depthwise", "one"]})
    adapted = opened(**grouped, lora={**LORA, "target_modules": "first|last|project"})
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter += 0.05
    save(adapted, network(**grouped), tmp_path)
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    again = opened(**grouped, checkpoint=str(tmp_path / "model.safetensors"))
    assert torch.allclose(adapted.eval()(images), again.eval()(images), atol=1e-12)


def test_an_adapter_on_a_transformer_counts_when_it_is_drawn_as_when_it_is_scored() -> None:
    attending = {
        "network": {"kind": "callable", "path": "tests.images.restoration.odd_networks:Attending", "channels": 1}
    }
    adapted = opened(**attending, lora=LORA).eval()
    shift(adapted)
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        drawn = adapted(images)
    assert torch.allclose(drawn, adapted(images), atol=1e-12)
    # What attention reads without calling it has none.
    assert {
        name.split(".lora_")[0].rpartition("model.")[2] for name, _ in adapted.named_parameters() if "lora_A" in name
    } == {
        "first",
        "inside.linear1",
        "inside.linear2",
    }


@pytest.mark.parametrize("how", ["old", "new", "own"])
def test_no_adapter_is_put_where_it_could_not_be_merged(tmp_path: Path, how: str) -> None:
    normed = {
        "network": {
            "kind": "callable",
            "path": "tests.images.restoration.odd_networks:WeightNormed",
            "arguments": {"how": how},
            "channels": 1,
        }
    }
    adapted = opened(**normed, lora=LORA).eval()
    shift(adapted)
    save(adapted, network(**normed), tmp_path)
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(load(tmp_path)(images), adapted(images), atol=1e-12)
    with pytest.raises(ConfigError, match=r"names first; the layers that can have an adapter are \['last'\]"):
        opened(**normed, lora={**LORA, "target_modules": ["first"]})
