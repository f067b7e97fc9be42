"""Whole runs whose completions come from each engine; the vLLM client speaks to a stand-in that runs a real model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.causal_lm.engine.stand_in import serving
from tests.integration.small import experiment, rollouts, rows
from transformers import AutoModelForCausalLM

from groupwise import train
from groupwise.causal_lm.backbone import Backbone
from groupwise.experiment.runner import open_domain, resume
from groupwise.streams import Streams
from groupwise_vllm.server import EngineError

GAP = "sampling/sampling_logp_difference/mean"
GAME = [
    "domain.data.source={kind = 'hidden_number', num_guesses = 2, min_size = 6, max_size = 8, largest = 15}",
    "domain.environment={kind = 'guess_the_number', num_guesses = 2, weight = 0.5}",
    "domain.sampling.max_turn_tokens=3",
    "domain.sampling.max_new_tokens=16",
]


def sampled(domain, **settings):
    return domain.sample(
        domain.prompts([0, 1, 2]),
        3,
        streams=Streams(0),
        step=0,
        settings=settings,
        requires=frozenset({"log_prob", "entropy"}),
    )


def test_generate_samples_an_adapter_under_top_p_and_a_correction(qwen: Path, tmp_path: Path) -> None:
    chosen = experiment(
        qwen,
        "domain.engine.kind=transformers",
        "domain.model.lora.r=2",
        "method=dapo+tis",
        "domain.sampling.top_p=0.8",
        "track.rollouts_every=1",
    )
    run = train(chosen, out=tmp_path / "run").folder.path
    first, second = rows(run)[1:]
    assert first[GAP] > 0.01, "top-p at 0.8 leaves out much of a wide distribution"
    assert first["updates/taken"] == second["updates/taken"] == 1
    assert len({member["text"] for member in rollouts(run, 1)}) > 6


@pytest.mark.slow
def test_what_a_lagging_server_sampled_is_kept_beside_what_the_policy_says(qwen: Path, tmp_path: Path) -> None:
    stale = AutoModelForCausalLM.from_pretrained(qwen, dtype=torch.bfloat16)
    with torch.no_grad():
        stale.model.layers[0].mlp.up_proj.weight.mul_(0.8)
    with serving(Backbone(stale)) as server:
        address = f"domain.engine={{kind = 'vllm', model = 'served', sync = 'none', address = '{server.address}'}}"
        domain = open_domain(experiment(qwen, address))
        samples = sampled(domain, temperature=0.7)
        expected = domain.score(samples, torch.arange(len(samples)), frozenset({"log_prob"})).log_prob.detach()
        torch.testing.assert_close(samples.old_log_prob, expected * samples.mask, rtol=0, atol=1e-6)
        gap = (samples.old_log_prob - samples.behaviour_log_prob)[samples.mask]
        assert 0.01 < gap.abs().max() < 3
        assert samples.old_log_prob.dtype == samples.behaviour_log_prob.dtype == torch.float32
        # What is measured on held-out prompts is the policy, not the server.
        assert (
            domain.evaluate(streams=Streams(0)).metrics
            == open_domain(experiment(qwen)).evaluate(streams=Streams(0)).metrics
        )
        # A correction weighs every decision by the policy over the server, cut at 2; a token that the server holds
        # likelier than the policy weighs less.
        run = train(
            experiment(qwen, address, "method=dapo+tis", "domain.sampling.top_k=9"), out=tmp_path / "run"
        ).folder.path
        assert all(row[GAP] > 0.01 and row["updates/taken"] == 1 for row in rows(run)[1:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformers", "vllm"])
def test_conversations_over_an_engine_that_completes_prompts(qwen: Path, tmp_path: Path, kind: str) -> None:
    with serving(Backbone(AutoModelForCausalLM.from_pretrained(qwen))) as server:
        engine = (
            f"{{kind = 'vllm', model = 'served', address = '{server.address}'}}"
            if kind == "vllm"
            else "{kind = 'transformers'}"
        )
        chosen = experiment(qwen, *GAME, f"domain.engine={engine}", "track.rollouts_every=1")
        samples = sampled(open_domain(chosen))
        masked_out = (~samples.mask & (torch.arange(samples.mask.shape[1]) < samples.payload["length"][:, None])).any(1)
        assert masked_out.all(), "every game of two guesses has one answer in between"
        run = train(chosen, out=tmp_path / "run").folder.path
    assert rows(run)[1]["updates/taken"] == 1
    member = rollouts(run, 1)[0]
    assert [message["role"] for message in member["messages"]] == ["assistant", "user", "assistant"]
    assert {"environment", "digits"} == set(member["rewards"])


def test_a_server_of_texts_shorter_than_a_held_out_prompt_is_named_before_it_samples(
    qwen: Path, tmp_path: Path
) -> None:
    """Training's prompts have room there, those that are evaluated at the end of the run have not."""
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"prompt": "sort: 1 2 3 4 5 6 7 8 9", "answer": "1"}\n')
    with serving(Backbone(AutoModelForCausalLM.from_pretrained(qwen))) as server:
        address = f"domain.engine={{kind = 'vllm', model = 'served', address = '{server.address}'}}"
        open_data = f"domain.data.evaluation={{long = '{held_out}'}}"
        server.max_model_len = 25
        sampled(open_domain(experiment(qwen, address)))
        num_requests = len(server.requests)
        with pytest.raises(EngineError, match=r"ends every text at 25 tokens, where the run asks for \d+ of"):
            sampled(open_domain(experiment(qwen, address, open_data)))
        assert len(server.requests) == num_requests


@pytest.mark.slow
def test_a_server_that_goes_away_is_named_and_the_run_goes_on_later(qwen: Path, tmp_path: Path) -> None:
    backbone = Backbone(AutoModelForCausalLM.from_pretrained(qwen))
    with serving(backbone) as server:
        port = server.server_port
        address = (
            f"domain.engine={{kind = 'vllm', model = 'served', address = '{server.address}', sync = 'none',"
            " concurrency = 1}"
        )
        chosen = experiment(qwen, address, "train.num_steps=3")
        whole = train(chosen, out=tmp_path / "whole").folder.path
        # A step asks 12 times: the server fails in the second.
        server.requests.clear()
        server.spoil = lambda answer: answer if len(server.requests) < 18 else {"choices": []}
        with pytest.raises(EngineError, match=rf"http://127.0.0.1:{port} answered without token ids"):
            train(chosen, out=tmp_path / "run")
        server.spoil = lambda answer: answer
        assert resume(tmp_path / "run").summary["steps"] == 3
    assert rows(tmp_path / "run") == rows(whole)
