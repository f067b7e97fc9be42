"""Servers that follow the weights, prove it, and fail: the run goes on where it can, and else one line says why."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import pytest
import torch
from tests.causal_lm.engine.stand_in import serving
from tests.causal_lm.engine.two_processes import Peer, open_pair, send_weights

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import LoraConfig, SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, sample
from groupwise.causal_lm.small import character_tokenizer
from groupwise.config import ConfigError
from groupwise.learner.shards import release
from groupwise_vllm import fleet
from groupwise_vllm import started as started_module
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.proof import Difference, Proof, bound
from groupwise_vllm.server import EngineError, Interrupted, Server
from groupwise_vllm.started import StartedServer, _same_device
from groupwise_vllm.transport import LoraTransport, open_transport, scratch_folder

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16], [17, 18, 19, 20]]
SETTINGS = SamplingConfig(max_new_tokens=8)
TOKENIZER = character_tokenizer("abcdefghij")


@pytest.fixture
def server(model_of):
    with serving(Backbone(model_of("gpt2"))) as running:
        yield running


@pytest.fixture
def trained(model_of):
    return model_of("gpt2")


@pytest.fixture
def engine_of(trained, server):
    engines = []

    def make(**changes):
        settings = {"address": server.address, "model": "served", "concurrency": 4, "patience_seconds": 60, **changes}
        engines.append(VllmEngine(**settings).open(Backbone(trained), TOKENIZER))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def move(model, size=0.05):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))


def draw(engine, prompts=PROMPTS, settings=SETTINGS):
    return engine.sample(GroupBatch(prompts, 2, settings, range(2 * len(prompts))))


def assert_of(model, completions, prompts=PROMPTS):
    """The tokens and log-probs are those of the built-in sampler on the model."""
    direct = sample(Backbone(model), GroupBatch(prompts, 2, SETTINGS, range(2 * len(prompts))))
    assert completions.token_lists() == direct.token_lists()
    torch.testing.assert_close(completions.behaviour_log_prob, direct.log_prob, rtol=0, atol=1e-5)


def test_the_server_follows_the_weights_once_a_change(trained, server, engine_of):
    engine = engine_of()
    first = draw(engine)
    assert draw(engine).weight_version == first.weight_version == 0
    assert server.syncs == ["v0"]
    move(trained)
    second = draw(engine)
    assert (second.weight_version, server.syncs) == (1, ["v0", "v1"])
    assert_of(trained, second)
    assert {"sync_seconds", "proof_seconds", "proof_difference"} == set(second.numbers)
    # An optimiser of another make may write through `.data`, which torch's own counters do not see.
    next(trained.parameters()).data.mul_(1.01)
    assert draw(engine).weight_version == 2


@pytest.mark.slow
def test_a_server_sleeps_between_batches(trained, server, engine_of):
    engine = engine_of(sleep=True)
    # A run that was killed may have left it asleep.
    server.asleep = True
    first = draw(engine)
    assert (server.asleep, server.sleeps) == (True, 1)
    assert_of(trained, first)
    assert first.numbers["sleep_seconds"] > 0
    move(trained)
    assert_of(trained, draw(engine))
    assert (server.asleep, server.sleeps, server.syncs) == (True, 2, ["v0", "v1"])
    # Started anew, it is awake, and has forgotten the weights.
    server.asleep = False
    server.restart()
    assert_of(trained, draw(engine))
    assert server.asleep


def test_a_server_that_cannot_sleep_is_told_with_what_to_write(server, engine_of):
    server.has_developer_routes = False
    with pytest.raises(EngineError, match=r"engine.sleep = true: .*404.*--enable-sleep-mode.*sleep = false"):
        draw(engine_of(sleep=True))


def test_servers_that_processes_share_do_not_sleep(engine_of, monkeypatch):
    monkeypatch.setattr("groupwise_vllm.vllm.num_processes", lambda: 2)
    with pytest.raises(ConfigError, match=r"engine.sleep = true: 2 processes share 1 servers"):
        engine_of(sleep=True)


def test_closing_an_engine_removes_the_weights_it_wrote(engine_of, tmp_path):
    engine = engine_of(folder=tmp_path)
    draw(engine)
    assert [path.name for path in tmp_path.glob("*/*")] == ["v0"]
    engine.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_each_training_process_has_servers_of_its_own(trained, server, engine_of, monkeypatch):
    engine = engine_of(address=(server.address, "http://127.0.0.1:9"))
    assert len(engine._fleet.servers) == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert draw(engine_of(address=("http://127.0.0.1:9", server.address))).weight_version == 0
    # Servers whose weights nobody sends are asked by every process.
    assert draw(engine_of(sync="none")).weight_version is None


@pytest.fixture
def pair(engine_of, monkeypatch):
    """The engines of two processes that share a server."""
    return open_pair(lambda: engine_of(patience_seconds=1), monkeypatch)


@pytest.mark.slow
def test_processes_share_a_server_to_which_the_first_sends_the_weights(trained, server, pair):
    for version in range(2):
        send_weights(pair, PROMPTS, 8)
        send_weights(pair, PROMPTS, 8)
        for engine in pair:
            completions = draw(engine)
            assert completions.weight_version == version
            assert_of(trained, completions)
        move(trained)
    assert server.syncs == ["v0", "v1"]
    # Eight prompts prove a version, of which there are four here; the second process believes the first.
    assert len(server.requests) == 2 * (len(PROMPTS) + 2 * 2 * len(PROMPTS))


@pytest.mark.slow
def test_a_shared_server_that_was_started_anew_is_asked_by_nobody_until_it_has_the_weights(trained, server, pair):
    first, second = pair
    move(trained)
    send_weights(pair, PROMPTS, 8)
    draw(second)
    server.restart()
    with pytest.raises(EngineError, match=r"has answered for 1 s.*it does not hold the trained weights"):
        draw(second)
    assert_of(trained, draw(first))
    assert server.syncs == ["v0", "v0"]
    assert_of(trained, draw(second))


@pytest.mark.slow
def test_the_second_process_of_a_shared_server_measures_half_precision_as_the_first(model_of, server, monkeypatch):
    trained = model_of("gpt2", torch.bfloat16)
    settings = VllmEngine(address=server.address, model="served", patience_seconds=1)
    engines = open_pair(lambda: settings.open(Backbone(trained), TOKENIZER), monkeypatch)
    send_weights(engines, PROMPTS, 8)
    limits = [engine._proof.limit(100) for engine in engines]
    assert limits[0] == limits[1] < 0.1
    for engine in engines:
        engine.close()


class Recorder:
    """A server that takes adapters, and refuses a name that it has."""

    def __init__(self):
        self.config, self.model, self.adapters, self.calls = VllmEngine(), "policy", {}, []

    async def call(self, client, path, body, **options):
        self.calls.append((path, body))
        if path == "/v1/unload_lora_adapter":
            del self.adapters[body["lora_name"]]
        elif body["lora_name"] in self.adapters:
            raise EngineError(f"status 400: The lora adapter {body['lora_name']!r} has already been loaded.")
        else:
            self.adapters[body["lora_name"]] = body["lora_path"]


def test_every_version_of_an_adapter_has_a_name_of_its_own(trained, tmp_path):
    """Under `load_inplace` vLLM reads the files of an adapter again for every token that it generates."""
    transports, server = [LoraTransport(trained, TOKENIZER, tmp_path) for _ in range(2)], Recorder()
    served = []
    for version in (0, 1, 1):
        for transport in transports:
            server.model = transport.last if version else "policy"
            asyncio.run(transport.send(None, server, version))
            transport.last = server.model
            served.append(server.model)
            assert server.adapters[server.model] == str(transport.path(version))
    assert len(set(served)) == 4
    assert set(server.adapters) == {transport.last for transport in transports}
    assert not any("load_inplace" in body for _, body in server.calls)
    for transport in transports:
        server.model = transport.last
        asyncio.run(transport.leave(None, server))
        transport.close()
    assert not server.adapters


def test_a_server_that_was_away_is_asked_under_the_name_that_the_others_have(trained):
    """The process that sends weights sends them later; the other processes have no other way to learn the name."""
    second = fleet.Fleet(VllmEngine(), ["http://a", "http://b"], None, Proof(Backbone(trained)), eos=())
    second.mark_proved({"http://a": "groupwise-1-v0", "http://b": "groupwise-1-v0"})
    second.advance()
    second.mark_proved({"http://b": "groupwise-1-v1"})
    assert [server.model for server in second.servers] == ["groupwise-1-v1"] * 2
    assert [server.version == second.version for server in second.servers] == [False, True]


class Elsewhere:
    """Shards of a model that lies whole here too, as the engine sees them within `gathered`."""

    def __init__(self, backbone):
        self.backbone, self.model = backbone, backbone.model


@pytest.fixture
def of_shards(engine_of):
    """An engine over a model in shards, and a function by which it notes changes of the weights."""

    def make(**changes):
        engine = engine_of(**changes)
        engine.backbone.shards = Elsewhere(engine.backbone)
        return engine, lambda: engine.send_weights(PROMPTS, 8, Peer(lambda value: [value]))

    return make


@pytest.mark.slow
def test_a_model_in_shards_leaves_its_scores_to_the_step_unless_its_servers_do_not_follow(of_shards):
    for sync, leaves in (("auto", True), ("none", False)):
        engine, send = of_shards(sync=sync)
        send()
        completions = draw(engine)
        assert engine.needs_rescoring == leaves
        assert bool(completions.log_prob[completions.mask].isnan().all()) == leaves


@pytest.mark.slow
def test_one_of_two_servers_that_was_started_anew_unseen_is_found_by_a_few_members(
    trained, server, of_shards, model_of
):
    """Groups go to the servers in turn, and so do the members that are compared."""
    prompts = PROMPTS * 4
    with serving(Backbone(model_of("gpt2"))) as other:
        engine, send = of_shards(address=(server.address, other.address))
        move(trained)
        send()
        draw(engine, prompts)
        send()
        assert (server.syncs, other.syncs) == (["v0"], ["v0"])
        other.restart()
        completions = draw(engine, prompts)
        assert other.syncs == ["v0", "v0"]
        direct = sample(Backbone(trained), GroupBatch(prompts, 2, SETTINGS, range(2 * len(prompts))))
        torch.testing.assert_close(completions.behaviour_log_prob, direct.log_prob, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_process_without_weights_asks_again_what_the_first_one_proved(trained, server, monkeypatch):
    """Of a model in shards only the process that sends the weights has gathered them."""
    settings = VllmEngine(address=server.address, model="served", patience_seconds=1)
    models = [trained, copy.deepcopy(trained)]
    remaining = iter(models)
    pair = open_pair(lambda: settings.open(Backbone(next(remaining)), TOKENIZER), monkeypatch)
    second = pair[1]
    assert [engine.sends_weights for engine in pair] == [True, False]
    for engine in pair:
        engine.backbone.shards = Elsewhere(Backbone(copy.deepcopy(trained)))
    release(models[1])
    move(trained)
    send_weights(pair, PROMPTS, 8)
    for _ in range(2):
        for engine in pair:
            completions = draw(engine)
            direct = sample(Backbone(trained), GroupBatch(PROMPTS, 2, SETTINGS, range(2 * len(PROMPTS))))
            torch.testing.assert_close(completions.behaviour_log_prob, direct.log_prob, rtol=0, atol=1e-5)
        # A connection that broke leaves the server's weights as they were, and the answers tell so.
        second._fleet.servers[0].version = None
    server.restart()
    second._fleet.servers[0].version = None
    with pytest.raises(EngineError, match=r"has answered for 1 s.*it does not hold the trained weights"):
        draw(second)
    assert server.syncs == ["v0"]
    for engine in pair:
        engine.close()


@pytest.mark.slow
def test_a_batch_that_was_scored_in_shards_is_compared_whole(trained, of_shards):
    engine, send = of_shards()
    send()
    served = draw(engine).behaviour_log_prob.reshape(-1)
    engine.check_scored(served + 1e-7, served)
    wrong = served.clone()
    wrong[-1] -= 0.5
    with pytest.raises(EngineError, match="sampled from other weights than they proved to hold"):
        engine.check_scored(wrong, served)


def test_flash_attention_in_shards_is_refused_where_servers_are_proved(of_shards):
    engine, send = of_shards()
    engine.backbone.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match=r'proved on the CPU.*write domain.model.attention = "sdpa"'):
        send()


def test_a_server_that_lost_its_adapter_is_asked_again(server):
    """A status of 404 to the name of an adapter says that the server was started anew."""
    ours = Server(server.address, VllmEngine(address=server.address, model="served"))
    ours.model = "groupwise-adapter"

    async def ask():
        async with httpx.AsyncClient() as client:
            await ours.complete(client, {"prompt": [5], "max_tokens": 1})

    with pytest.raises(Interrupted, match="does not know the adapter that it was sent: it was started anew"):
        asyncio.run(ask())


def test_a_server_is_started_on_the_device_of_its_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for visible, expected in (("", "1"), ("4,7", "7")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert _same_device() == {"CUDA_VISIBLE_DEVICES": expected}


def test_a_sync_that_changes_nothing_ends_the_run(trained, server, engine_of):
    engine = engine_of()
    draw(engine)
    server.takes_weights = False
    move(trained)
    with pytest.raises(EngineError, match=r"does not hold the trained weights.*rounding explains.*changed nothing"):
        draw(engine)


def test_a_server_of_another_model_is_refused_before_it_samples(server, engine_of):
    server.takes_weights = False
    move(server.backbone.model, 0.5)
    with pytest.raises(EngineError, match=r"does not hold the trained weights.*another model; start it on the folder"):
        draw(engine_of())


@pytest.mark.slow
def test_a_server_of_another_vocabulary_is_sent_no_weights(trained, server, engine_of):
    server.tokenizer = character_tokenizer("0123abcdefghij")
    with pytest.raises(EngineError, match=r"another model: it tokenizes .* as \[\d+, .* start it on"):
        draw(engine_of())
    assert not server.syncs
    # A server that has no tokenizer, which token ids do not need, may answer 500.
    for server.tokenizer in (TOKENIZER, False):
        assert_of(trained, draw(engine_of(patience_seconds=0.3)))


@pytest.mark.slow
def test_a_server_of_another_shape_is_sent_no_weights(trained, server, engine_of):
    text = "(lm_head): ParallelLMHead(num_embeddings={0}, embedding_dim={1}, org_vocab_size={0})"
    head = trained.get_output_embeddings()
    server.inspection = text.format(head.out_features, head.in_features + 8)
    with pytest.raises(EngineError, match=rf"another model: its head is \d+ x {head.in_features + 8}.* start it on"):
        draw(engine_of())
    assert not server.syncs
    server.inspection = text.format(head.out_features, head.in_features)
    assert_of(trained, draw(engine_of()))


@pytest.mark.parametrize(
    "layers",
    [pytest.param("(0-6): 7 x Block()", marks=pytest.mark.slow), "(0): Block()\n    (1-3): 3 x OtherBlock()"],
)
def test_a_server_of_another_depth_is_sent_no_weights(trained, server, engine_of, layers):
    head, depth = trained.get_output_embeddings(), len(trained.transformer.h)
    text = (
        "Model()(\n  (wte): Embedding(embedding_dim={1}, org_vocab_size={0})\n  (h): ModuleList()(\n    {2}\n  )\n"
        "  (mlp): Sequential()(\n    (0-8): 9 x Linear()\n  )\n)"
    )
    server.inspection = text.format(head.out_features, head.in_features, layers)
    with pytest.raises(EngineError, match=rf"another model: it has [47] layers, the trained model {depth}; start it"):
        draw(engine_of())
    assert not server.syncs
    server.inspection = text.format(head.out_features, head.in_features, f"(0-{depth - 1}): {depth} x Block()")
    assert_of(trained, draw(engine_of()))


def test_a_server_of_shorter_texts_than_will_come_is_named_before_it_is_sent_weights(server, engine_of):
    server.max_model_len = 30
    engine = engine_of()
    engine.announce_length(31)
    with pytest.raises(EngineError, match=r"ends every text at 30 tokens, .* for 31 .*; start it with --max-model-len"):
        draw(engine)
    assert not server.syncs
    server.max_model_len = 31
    draw(engine)


def test_a_server_that_cannot_read_the_weights_is_told_by_its_first_reason(server, engine_of):
    server.takes_weights = None
    with pytest.raises(EngineError, match=r"did not read the weights in .* \(status 500.*does it serve the model"):
        draw(engine_of(patience_seconds=0.3))


@pytest.mark.slow
def test_a_server_that_was_started_anew_unseen_is_sent_the_weights_again(trained, server, engine_of):
    engine = engine_of()
    move(trained)
    draw(engine)
    server.restart()
    assert_of(trained, draw(engine))
    assert server.syncs == ["v0", "v0"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"greedy": True}, pytest.param({"top_k": 3}, marks=pytest.mark.slow)])
def test_a_server_that_was_started_anew_is_found_by_answers_without_comparable_log_probs(
    trained, server, engine_of, changes
):
    engine, settings = engine_of(), SamplingConfig(max_new_tokens=8, **changes)
    move(trained)
    first = draw(engine, settings=settings)
    server.restart()
    second = draw(engine, settings=settings)
    assert second.token_lists() == first.token_lists()
    assert server.syncs == ["v0", "v0"]


@pytest.mark.slow
def test_conversations_with_a_server_that_was_started_anew_begin_again(trained, server, engine_of):
    engine, said, begun = engine_of(), [], []

    def answer(member, turn):
        said.append((member, turn))
        return [5] if len(turn) < 4 else None

    def begin_again():
        begun.append(list(said))
        said.clear()

    def converse():
        settings = SamplingConfig(max_new_tokens=8, max_turn_tokens=3)
        engine.sample(GroupBatch(PROMPTS, 2, settings, range(8), continue_with=answer, begin_again=begin_again))
        return [said.copy(), said.clear()][0]

    move(trained)
    first = converse()
    server.restart()
    assert converse() == first
    assert len(begun) == 1


@pytest.mark.parametrize("end", ["silence", *(pytest.param(end, marks=pytest.mark.slow) for end in ("abort", "close"))])
def test_a_completion_that_breaks_off_goes_on_from_its_prefix(trained, server, engine_of, end):
    # A server that only was slow may not be taken for one that fell silent.
    engine = engine_of(silence_seconds=2.0 if end == "silence" else 60.0, first_token_seconds=60)
    draw(engine)
    server.requests.clear()
    server.breaks = [end] * 3
    completions = draw(engine)
    # Every token has the log-prob of its own draw, and no member counts as cut by a limit that it did not meet.
    torch.testing.assert_close(completions.behaviour_log_prob, completions.log_prob, rtol=0, atol=1e-5)
    resumed = [request for request in server.requests if request["max_tokens"] == SETTINGS.max_new_tokens - 2]
    assert len(resumed) == 3
    assert {len(request["prompt"]) for request in resumed} <= {len(prompt) + 2 for prompt in PROMPTS}
    lengths = completions.length.tolist()
    assert all(
        length == SETTINGS.max_new_tokens for length, cut in zip(lengths, completions.truncated, strict=True) if cut
    )


def test_a_stop_text_across_the_place_where_a_completion_broke_off_ends_it(trained, server):
    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz01")
    engine = VllmEngine(address=server.address, model="served", sync="none").open(Backbone(trained), tokenizer)

    def tokens(stop):
        server.breaks = ["abort"]
        settings = SamplingConfig(max_new_tokens=8, stop=stop)
        completions = engine.sample(GroupBatch(PROMPTS[:1], 1, settings, [4]))
        return completions.token_lists()[0], bool(completions.truncated)

    whole, _ = tokens(())
    # The server has sent two tokens when it breaks off, and this one looks for no stop text.
    stop = tokenizer.decode(whole[1:3])
    assert len(stop) == 2
    assert stop not in tokenizer.decode(whole[:2])
    assert len(whole) > 3
    assert tokens((stop,)) == (whole[:3], False)


def test_a_server_of_shorter_texts_than_the_run_asks_for_is_named(server, engine_of):
    engine = engine_of(sync="none")
    server.max_model_len = 9
    with pytest.raises(
        EngineError, match=r"ends every text at 9 tokens, .* for 15 .*; start it with --max-model-len=15"
    ):
        draw(engine, PROMPTS[:1])
    server.max_model_len = 7
    with pytest.raises(EngineError, match=r"it refuses a request, status 400: This model's maximum .* exceeded\.$"):
        draw(engine, PROMPTS[:1])


@pytest.mark.slow
def test_a_dead_server_of_two_is_named_once_and_the_other_takes_its_groups(
    trained, server, engine_of, model_of, caplog
):
    with serving(Backbone(model_of("gpt2"))) as second:
        engine = engine_of(address=(server.address, second.address))
        assert_of(trained, draw(engine))
        assert server.requests
        assert second.requests
    second.server_close()
    server.requests.clear()
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert_of(trained, draw(engine))
    assert len(caplog.messages) == 1
    assert second.address in caplog.messages[0]
    assert "the other 1 take its groups" in caplog.messages[0]


def test_a_server_that_comes_back_is_named(trained, server, engine_of, caplog):
    engine = engine_of(concurrency=1)
    draw(engine)
    server.breaks = ["close"]
    with caplog.at_level(logging.WARNING, "groupwise"):
        draw(engine)
    away, back = caplog.messages
    assert away.endswith("it is asked again for 60 s")
    assert back == f"domain.engine: {server.address}: it answers again"


@pytest.mark.slow
def test_a_server_that_takes_connections_and_answers_nothing_is_told_from_one_that_works(
    trained, server, engine_of, caplog
):
    # As of a process that was stopped: the machine connects for it.
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        engine = engine_of(address=(server.address, address), silence_seconds=2, timeout_seconds=60)
        with caplog.at_level(logging.WARNING, "groupwise"):
            for _ in range(2):
                assert_of(trained, draw(engine))
                move(trained)
    # It is named once, and not asked by the second batch, which begins while it rests.
    assert caplog.messages == [
        f"domain.engine: {address}: no sign of life for 2 s; the other 1 take its groups",
    ]


@pytest.mark.slow
def test_a_server_that_rests_long_is_asked_where_the_other_one_has_died(trained, server, engine_of, monkeypatch):
    """It rested for minutes after a stop, and the run waited with it, though it lived again and nobody else did."""
    monkeypatch.setattr(fleet, "LONGEST_REST", 0.2)
    engine = engine_of(address=(server.address, "http://127.0.0.1:9"))
    engine._fleet.servers[0].rests_until = time.monotonic() + 1000.0
    assert_of(trained, draw(engine))


def test_a_quick_request_that_a_living_server_leaves_alone_has_a_deadline():
    async def leave(reader, writer):
        if (await reader.readline()).startswith(b"GET"):
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
            writer.close()

    async def ask():
        async with await asyncio.start_server(leave, "127.0.0.1", 0) as listener:
            address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            server = Server(address, VllmEngine(silence_seconds=2, first_token_seconds=3, timeout_seconds=60))
            async with httpx.AsyncClient() as client:
                await server.call(client, "/pause", {}, is_quick=True)

    with pytest.raises(Interrupted, match="no reply to /pause for 3 s"):
        asyncio.run(ask())


def test_members_that_wait_their_turn_are_no_sign_of_a_dead_server(trained, server, engine_of, caplog):
    server.seconds = 0.6
    engine = engine_of(concurrency=8, first_token_seconds=4, silence_seconds=4)
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert_of(trained, draw(engine))
    assert not caplog.messages
    assert len(server.syncs) == 1


def test_requests_of_another_process_are_no_sign_of_a_dead_server(trained, server, engine_of, caplog):
    server.seconds, server.num_tokens, served = 2.6, 0, threading.Event()

    def serve_others():
        while not served.wait(0.1):
            server.num_tokens += 1

    others = threading.Thread(target=serve_others)
    others.start()
    try:
        settings = {"first_token_seconds": 2.0, "silence_seconds": 2.0, "sync": "none"}
        engine = engine_of(concurrency=1, **settings)
        with caplog.at_level(logging.WARNING, "groupwise"):
            engine.sample(GroupBatch(PROMPTS[:1], 1, SETTINGS, [0]))
        assert not caplog.messages
    finally:
        served.set()
        others.join()
    server.seconds = 10.0
    with caplog.at_level(logging.WARNING, "groupwise"), pytest.raises(EngineError, match="no token for 2 s"):
        engine_of(concurrency=1, patience_seconds=0.1, **settings).sample(GroupBatch(PROMPTS[:1], 1, SETTINGS, [0]))


def test_a_server_on_this_machine_is_asked_without_the_proxy_of_the_environment(
    trained, server, engine_of, monkeypatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert_of(trained, draw(engine_of(patience_seconds=0.3)))


def test_a_server_is_told_the_whole_path_of_a_folder(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    transport = open_transport(VllmEngine(folder=Path("our weights: new")), trained, TOKENIZER)
    assert transport.path(0).is_relative_to(tmp_path / "our weights: new")
    transport.close()


@pytest.mark.slow
def test_a_completion_that_is_always_broken_off_ends_the_run(server, engine_of):
    engine = engine_of(patience_seconds=0.3)
    draw(engine)
    server.spoil = lambda answer: {"choices": [{"text": "", "finish_reason": "abort", "logprobs": None}]}
    with pytest.raises(EngineError, match="breaks every completion off"):
        draw(engine)


def test_bad_settings_are_one_line_before_anything_is_computed(trained):
    with pytest.raises(ConfigError, match=r'sync = "lora": the run trains whole weights'):
        open_transport(VllmEngine(sync="lora"), trained, TOKENIZER)
    with pytest.raises(ConfigError, match="executable = 'no-such-vllm': there is no such command"):
        StartedServer(VllmEngine(start=True, executable="no-such-vllm"), trained, TOKENIZER)
    with pytest.raises(ConfigError, match="serves no weights in float64"):
        StartedServer(VllmEngine(start=True, executable="true"), trained.double(), TOKENIZER)
    with pytest.raises(ValueError, match="stands in the list twice"):
        VllmEngine(address=("http://a", "http://a/"))
    with pytest.raises(ValueError, match="would never follow"):
        VllmEngine(start=True, sync="none")
    with pytest.raises(ValueError, match="--port=80: the run itself writes --port; leave it out"):
        VllmEngine(start=True, arguments=("--max-num-seqs=4", "--port=80"))
    with pytest.raises(ValueError, match=r"--served_model_name: .* write domain\.engine\.model"):
        VllmEngine(start=True, arguments=("--served_model_name", "other"))


def test_a_server_that_ends_as_it_starts_is_told_with_its_last_words(trained, tmp_path):
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\necho 'ValueError: no such device' >&2\nexit 3\n")
    program.chmod(0o755)
    started = StartedServer(VllmEngine(start=True, executable=str(program)), trained, TOKENIZER)
    with pytest.raises(EngineError, match=r"ended with status 3: ValueError: no such device"):
        started.wait()
    started.close()
    started.close()


def test_a_killed_run_leaves_neither_server_nor_weights(trained, tmp_path):
    """Its server, processes of that included, ends with it; the next run removes its folders."""
    program = tmp_path / "vllm"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 1000 & echo $! > {tmp_path}/grandchild\nwait\n")
    program.chmod(0o755)
    supervisor = Path(started_module.__file__).with_name("supervisor.py")
    code = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-I', {str(supervisor)!r}, str(os.getpid()), {str(program)!r}])\n"
        "time.sleep(1000)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code])
    # The shell makes the file before it writes the number.
    wait_for(lambda: (tmp_path / "grandchild").is_file() and (tmp_path / "grandchild").read_text().endswith("\n"))
    grandchild = int((tmp_path / "grandchild").read_text())
    run.kill()
    run.wait()
    wait_for(lambda: not Path(f"/proc/{grandchild}").exists())
    left = scratch_folder("weights", trained)
    folder = Path(left.name)
    os.utime(folder, (0, 0))
    scratch_folder("weights", trained).cleanup()
    assert folder.exists(), "the folder of a run that lives, here or in another container"
    os.close(left.descriptor)
    left.descriptor = -1
    scratch_folder("weights", trained).cleanup()
    assert not folder.exists()


def test_weights_lie_elsewhere_where_nobody_may_write_to_memory(trained, monkeypatch):
    # Of a file system that is mounted to be read, also for root, who may write to every other folder.
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "/dev/shm")
    with scratch_folder("weights", trained) as folder:
        assert Path(folder).parent == Path(tempfile.gettempdir())


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells nobody that a parent was killed")
def test_a_server_whose_supervisor_was_killed_ends(tmp_path):
    program = tmp_path / "vllm"
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/written\nmv {tmp_path}/written {tmp_path}/pid\nexec sleep 1000\n"
    )
    program.chmod(0o755)
    supervisor = Path(started_module.__file__).with_name("supervisor.py")
    kept = subprocess.Popen([sys.executable, "-I", str(supervisor), str(os.getpid()), str(program)])
    wait_for((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    kept.kill()
    kept.wait()
    wait_for(lambda: not running(pid))


def running(pid):
    """Returns whether a process lives; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_bound_grows_with_precision_layers_and_width():
    assert bound(2**-9, 2, 64, 100) == pytest.approx(2**15 * bound(2**-24, 2, 64, 100))
    assert bound(2**-24, 30, 576, 10**9) == pytest.approx(4 * 2**-24 * (576 * 302) ** 0.5, rel=1e-3)
    assert bound(2**-24, 2, 64, 8) == pytest.approx(1.75 * bound(2**-24, 2, 64, 10**12), rel=1e-3)


def test_half_precision_is_measured_by_the_first_proof(model_of):
    proof = Proof(Backbone(model_of("gpt2", torch.bfloat16)))
    assert proof.limit(100) == pytest.approx(0.1)
    assert proof.fault("a", [], Difference(0.01, 0.02, 100)) == ""
    assert proof.limit(100) == pytest.approx(0.04)
    assert "did not reach all weights" in proof.fault("b", [], Difference(0.05, 0.1, 100))


def test_an_adapter_goes_alone(model_of, tmp_path):
    from groupwise.causal_lm.loading import prepared

    loaded = prepared(model_of("gpt2"), TOKENIZER, 0.0, LoraConfig(r=2), torch.device("cpu"))
    transport = open_transport(VllmEngine(folder=tmp_path), loaded.model, TOKENIZER)
    transport.write(0)
    transport.write(1)
    (folder,) = tmp_path.glob("*/*")
    assert folder.name == "v1"
    assert {path.name for path in folder.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    assert not (folder / "model.safetensors").exists()
    transport.close()
