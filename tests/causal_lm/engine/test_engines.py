"""Engines give what the built-in sampler gives: rows that a rescoring confirms. The vLLM client speaks to a small
server that runs a real model.
"""

from __future__ import annotations

import pytest
import torch
from tests.causal_lm.engine.stand_in import serving

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig, TransformersEngine
from groupwise.causal_lm.decode import DistributionError
from groupwise.causal_lm.sampler import GroupBatch, sample
from groupwise.config import ConfigError
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.server import EngineError

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13]]


@pytest.fixture
def server(model_of):
    with serving(Backbone(model_of("gpt2", torch.float64))) as running:
        yield running


def check_rows(model, out, temperature, group_size, atol=1e-10):
    """`log_prob` is the full distribution's at every token the policy chose, by a plain forward of each row."""
    for member, tokens in enumerate(out.token_lists()):
        prompt = PROMPTS[member // group_size]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        mask = out.mask[member, : len(tokens)]
        torch.testing.assert_close(
            out.log_prob[member, : len(tokens)], (expected * mask).to(out.log_prob.dtype), rtol=0, atol=atol
        )


@pytest.mark.parametrize("config", [BuiltinEngine(max_members=2), TransformersEngine(max_members=3)])
def test_local_engines_sample_rows_that_a_rescoring_confirms(model_of, config):
    model = model_of("gpt2", torch.float64)
    engine = config.open(Backbone(model), None)
    settings = SamplingConfig(max_new_tokens=10, temperature=0.9, top_k=6)
    out = engine.sample(GroupBatch(PROMPTS, 2, settings, range(4), requires=("log_prob", "entropy")))
    check_rows(model, out, 0.9, 2)
    assert (out.behaviour_log_prob >= out.log_prob - 1e-5).all()
    assert (out.behaviour_log_prob - out.log_prob).max() > 1e-3
    assert (out.entropy[out.mask] > 0).all()
    again = engine.sample(GroupBatch(PROMPTS, 2, settings, range(4), requires=("log_prob", "entropy")))
    assert again.token_lists() == out.token_lists()
    assert engine.sample(GroupBatch(PROMPTS, 2, settings, range(5, 9))).token_lists() != out.token_lists()


def test_generate_agrees_with_the_builtin_sampler_when_greedy(model_of):
    backbone = Backbone(model_of("qwen3"))
    settings = SamplingConfig(max_new_tokens=10, greedy=True)
    ours, theirs = (
        config.open(backbone, None).sample(GroupBatch(PROMPTS, 1, settings, [0, 1]))
        for config in (BuiltinEngine(), TransformersEngine())
    )
    assert ours.token_lists() == theirs.token_lists()
    torch.testing.assert_close(ours.log_prob, theirs.log_prob, rtol=0, atol=1e-4)


def test_a_folders_own_habits_of_generation_are_left_aside(model_of):
    model = model_of("qwen3")
    backbone = Backbone(model)
    settings = SamplingConfig(max_new_tokens=10, greedy=True)
    expected = sample(backbone, GroupBatch(PROMPTS, 1, settings, [0, 1]))
    # As Qwen2.5 Instruct has them, for people who chat.
    habits = model.generation_config
    habits.repetition_penalty, habits.top_k, habits.temperature, habits.do_sample = 5.0, 2, 0.1, True
    engine = TransformersEngine().open(backbone, None)
    assert engine.sample(GroupBatch(PROMPTS, 1, settings, [0, 1])).token_lists() == expected.token_lists()
    out = engine.sample(GroupBatch(PROMPTS, 4, SamplingConfig(max_new_tokens=10), range(8)))
    torch.testing.assert_close(out.behaviour_log_prob, out.log_prob, rtol=0, atol=1e-4)
    assert model.generation_config is habits


@pytest.mark.parametrize("changes", [{}, {"greedy": True}, {"top_k": 5}])
def test_generate_names_the_member_whose_numbers_break(model_of, changes):
    model = model_of("gpt2")
    engine = TransformersEngine(max_members=2).open(Backbone(model), None)
    # Only the second prompt is as long as this position, which it reaches with its second token.
    with torch.no_grad():
        model.transformer.wpe.weight[8] = float("nan")
    with pytest.raises(
        DistributionError, match=r"for 2 of 2 members \(first: prompt 1 of the batch, member 0, token 2,"
    ):
        engine.sample(
            GroupBatch([[12, 13], [5, 6, 7, 8, 9, 10, 11]], 2, SamplingConfig(max_new_tokens=3, **changes), range(4))
        )


@pytest.mark.parametrize("config", [BuiltinEngine(), TransformersEngine()])
def test_engines_refuse_what_has_no_room_in_the_context(model_of, config):
    engine = config.open(Backbone(model_of("gpt2")), None)
    with pytest.raises(ConfigError, match="context of 64"):
        engine.sample(GroupBatch(PROMPTS, 1, SamplingConfig(max_new_tokens=60), range(2)))


def test_the_client_asks_by_token_ids_and_keeps_what_was_sampled(model_of, server):
    model = model_of("gpt2", torch.float64)
    engine = VllmEngine(address=server.address, model="served", sync="none").open(Backbone(model), None)
    settings = SamplingConfig(max_new_tokens=8, temperature=1.4, top_p=0.7)
    out = engine.sample(GroupBatch(PROMPTS, 3, settings, range(6)))
    direct = sample(server.backbone, GroupBatch(PROMPTS, 3, settings, range(6)))
    assert out.token_lists() == direct.token_lists()
    torch.testing.assert_close(out.log_prob, direct.log_prob, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.behaviour_log_prob, direct.behaviour_log_prob, rtol=0, atol=1e-10)
    assert torch.equal(out.truncated, direct.truncated)
    assert all(isinstance(token, int) for request in server.requests for token in request["prompt"])
    assert {request["repetition_penalty"] for request in server.requests} == {1.0}, (
        "or the server takes the model folder's"
    )


def test_a_conversation_over_the_server(model_of, server):
    model = model_of("gpt2", torch.float64)
    engine = VllmEngine(address=server.address, model="served", sync="none").open(Backbone(model), None)
    answers = {0: [[20, 21]], 1: [[22] * 40]}
    out = engine.sample(
        GroupBatch(
            PROMPTS,
            1,
            SamplingConfig(max_new_tokens=14, max_turn_tokens=3),
            range(2),
            continue_with=lambda m, turn: answers[m].pop(0) if answers[m] else None,
        )
    )
    check_rows(model, out, 1.0, 1)
    first = out.mask[0].tolist().index(False)
    assert out.tokens[0, first : first + 2].tolist() == [20, 21]
    assert out.mask[0, first + 2]
    assert out.length[1] == 14
    assert out.truncated[1]


@pytest.mark.slow
def test_a_server_that_fails_is_asked_again_then_named(model_of, server):
    backbone = Backbone(model_of("gpt2", torch.float64))
    settings = SamplingConfig(max_new_tokens=2)

    def engine(**changes):
        fixed = {"address": server.address, "model": "served", "concurrency": 1, "sync": "none"}
        return VllmEngine(**{**fixed, "patience_seconds": 0.3, **changes}).open(backbone, None)

    server.fail = 2
    engine(patience_seconds=60).sample(GroupBatch(PROMPTS[:1], 1, settings, [0]))
    server.fail = 30
    with pytest.raises(EngineError, match=r"has answered for 0\.3 s.*status 503.*is the vLLM server running"):
        engine().sample(GroupBatch(PROMPTS[:1], 1, settings, [0]))
    server.fail = 0
    with pytest.raises(EngineError, match=r"status 404.*'other'"):
        engine(model="other").sample(GroupBatch(PROMPTS[:1], 1, settings, [0]))
    with pytest.raises(EngineError, match="is the vLLM server running"):
        engine(address="http://127.0.0.1:9").sample(GroupBatch(PROMPTS[:1], 1, settings, [0]))
    for spoil, message in (
        (lambda a: {"choices": [{**a["choices"][0], "logprobs": {}}]}, "without token ids"),
        (lambda a: {"choices": [{**a["choices"][0], "logprobs": None}]}, "without token ids"),
        (
            lambda a: {
                "choices": [
                    {**a["choices"][0], "logprobs": {"tokens": ["token_id:3"], "token_logprobs": [float("-inf")]}}
                ]
            },
            "not finite",
        ),
        (
            lambda a: {
                "choices": [
                    {**a["choices"][0], "logprobs": {"tokens": ["token_id:3"] * 9, "token_logprobs": [0.0] * 9}}
                ]
            },
            "gave 18 tokens",
        ),
    ):
        server.spoil = spoil
        with pytest.raises(EngineError, match=message):
            engine().sample(GroupBatch(PROMPTS[:1], 1, settings, [0]))


def test_raw_log_probs_are_refused_where_they_are_of_another_distribution(model_of):
    engine = VllmEngine(model="served", processed_logprobs=False, sync="none").open(Backbone(model_of("gpt2")), None)
    with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
        engine.sample(GroupBatch(PROMPTS, 1, SamplingConfig(temperature=0.7), [0, 1]))
