"""A way of the weights that a user wrote: it is named by its import path, proved like any other, and its failures are
one line.
"""

from __future__ import annotations

import asyncio
import shutil

import httpx
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from tests.causal_lm.engine.stand_in import serving

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import AnyEngine, SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch
from groupwise.causal_lm.small import character_tokenizer
from groupwise.config import ConfigError, import_paths, restrict_code
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.server import EngineError
from groupwise_vllm.transport import FileTransport, Transport, reload_folder, save_whole

TOKENIZER = character_tokenizer("abcdefghij")


class Carried(FileTransport):
    """Copies the files to a second folder, which the server reads."""

    def __init__(self, model, tokenizer, folder, *, second, fails=""):
        super().__init__(model, tokenizer, folder)
        self.second, self.fails = second, fails

    def save(self, folder):
        if self.fails == "save":
            raise OSError("the disk is full")
        save_whole(self.model, self.tokenizer, folder)

    async def send(self, client, server, version):
        if self.fails == "send":
            raise KeyError("address")
        if self.fails == "connection":
            raise ConnectionRefusedError("the second machine is away")
        if self.fails == "status":
            httpx.Response(404, request=httpx.Request("PUT", "http://store/v0")).raise_for_status()
        if self.fails == "silence":
            await asyncio.sleep(1000)
        target = f"{self.second}/of-{version}"
        if self.fails != "nothing":
            shutil.copytree(self.path(version), target)
            await reload_folder(client, server, target)

    async def leave(self, client, server):
        if self.fails == "leave":
            raise KeyError("address")


class Unfinished(Transport):
    """A transport that nobody has finished."""

    def write(self, version):
        pass


@pytest.fixture
def trained(model_of):
    return model_of("gpt2")


@pytest.fixture
def server(model_of):
    with serving(Backbone(model_of("gpt2"))) as running:
        yield running


@pytest.fixture
def engine_of(trained, server, tmp_path):
    engines = []

    def make(**arguments):
        sync = {"kind": "callable", "path": f"{__name__}:Carried", "arguments": {"second": str(tmp_path), **arguments}}
        settings = {"address": server.address, "model": "served", "sync": sync, "patience_seconds": 0.3}
        config = VllmEngine(**settings, timeout_seconds=0.5 if arguments.get("fails") == "silence" else 60)
        engines.append(config.open(Backbone(trained), TOKENIZER))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def draw(engine):
    return engine.sample(GroupBatch([[5, 6, 7], [12, 13]], 2, SamplingConfig(max_new_tokens=6), range(4)))


def move(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))


def test_weights_go_the_way_of_a_user_and_are_proved(trained, server, engine_of):
    engine = engine_of()
    for version in range(2):
        completions = draw(engine)
        assert completions.weight_version == version
        torch.testing.assert_close(completions.behaviour_log_prob, completions.log_prob, rtol=0, atol=1e-5)
        move(trained)
    assert server.syncs == ["of-0", "of-1"]


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("save", r"^domain.engine.sync: Carried.write failed: OSError: the disk is full \(at .* save\)$"),
        ("send", r"^domain.engine.sync: Carried.send failed: KeyError: 'address' \(at .* in send\)$"),
        ("connection", r"has answered for 0\.3 s .*Carried.send failed: ConnectionRefusedError: the second machine"),
        ("status", r"Carried.send failed: HTTPStatusError: Client error '404 Not Found' for url 'http://store/v0'\)"),
        ("silence", r"has answered for 0\.3 s .*Carried.send failed: TimeoutError"),
        ("nothing", r"does not hold the trained weights"),
    ],
)
def test_what_a_transport_of_a_user_does_wrong_is_one_line(trained, engine_of, fails, message):
    engine = engine_of(fails=fails)
    move(trained)
    with pytest.raises(EngineError, match=message) as error:
        draw(engine)
    assert "\n" not in str(error.value)


def test_what_a_transport_of_a_user_leaves_wrong_is_told_and_its_files_are_removed(engine_of, caplog):
    engine = engine_of(fails="leave")
    draw(engine)
    folder = engine._transport.folder
    assert folder.exists()
    engine.close()
    (message,) = caplog.messages
    assert "Carried.leave failed: KeyError: 'address' (at " in message
    assert not folder.exists()


def test_a_class_that_is_no_transport_is_refused_where_the_configuration_is_read(engine_of):
    def read(name):
        sync = {"kind": "callable", "path": f"{__name__}:{name}"}
        return TypeAdapter(AnyEngine).validate_python({"kind": "vllm", "sync": sync})

    for name, message in (
        ("Carrid", "has no class 'Carrid'; .* did you mean Carried"),
        ("Backbone", "Backbone does not extend groupwise_vllm.transport.Transport"),
        ("Unfinished", "Unfinished lacks send"),
    ):
        with pytest.raises((ValidationError, ConfigError), match=message):
            read(name)
        with restrict_code():
            assert [place.key for place in import_paths(read(name))] == ["sync.path"]
    with pytest.raises(ConfigError, match=r"Carried\(model, tokenizer, folder.*\) failed: TypeError: .*'colour'"):
        engine_of(colour="red")
