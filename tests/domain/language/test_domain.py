from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.domain.language.calling_model import calling_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import small_model
from groupwise.config import ConfigError
from groupwise.records import Scored
from groupwise.reward import RewardError
from groupwise.streams import Streams

ALL = frozenset({"log_prob", "entropy", "score_norm"})
GAME = {
    "data": {"source": {"kind": "hidden_number", "largest": 15, "min_size": 6, "max_size": 8, "num_guesses": 3}},
    "environment": {"kind": "guess_the_number", "num_guesses": 3},
    "rewards": {"correct": None, "worked": None},
    "sampling": {"max_new_tokens": 24, "max_turn_tokens": 2},
}


def sample(domain, prompts=2, group=3, step=0, **settings):
    return domain.sample(
        domain.prompts(range(prompts)), group, streams=Streams(0), step=step, settings=settings, requires=ALL
    )


def everything(samples):
    return torch.arange(len(samples))


def test_rescoring_gives_what_the_sampler_recorded(build):
    domain = build()
    samples = sample(domain)
    assert samples.group.tolist() == [0, 0, 0, 1, 1, 1]
    scored = domain.score(samples, everything(samples), ALL)
    for name, recorded in samples.recorded.tensors().items():
        torch.testing.assert_close(scored.tensors()[name].masked_fill(~samples.mask, 0.0), recorded, atol=1e-10, rtol=0)
    assert scored.log_prob.requires_grad
    some = domain.score(samples, torch.tensor([4, 1]), frozenset({"log_prob"}))
    torch.testing.assert_close(some.log_prob, scored.log_prob[[4, 1]], atol=1e-12, rtol=0)
    assert some.entropy is None


def test_a_members_text_depends_on_its_own_seed_alone(build):
    domain = build()
    whole = sample(domain, prompts=4, group=3)
    alone = domain.sample(domain.prompts([2]), 2, streams=Streams(0), step=0, settings={}, requires=ALL)
    whole_texts, alone_texts = (
        [each["text"] for each in domain.describe(samples, everything(samples))] for samples in (whole, alone)
    )
    assert alone_texts == whole_texts[6:8]
    assert [
        each["text"] for each in domain.describe(sample(domain, prompts=4, step=1), torch.arange(12))
    ] != whole_texts


def test_known_cotangents_give_autograds_gradient(build):
    domain = build()
    samples = sample(domain, temperature=0.5)
    rows = torch.tensor([0, 3, 2, 1])
    torch.manual_seed(0)
    shape = samples.mask[rows].shape
    cotangents = Scored(torch.randn(shape, dtype=torch.float64), entropy=torch.randn(shape, dtype=torch.float64))
    mask = samples.mask[rows]
    scored = domain.score(samples, rows, frozenset({"log_prob", "entropy"}))
    ((cotangents.log_prob * scored.log_prob + cotangents.entropy * scored.entropy) * mask).sum().backward()
    expected = [parameter.grad.clone() for parameter in domain.module.parameters()]
    domain.module.zero_grad()
    returned = domain.backward(samples, rows, cotangents)
    torch.testing.assert_close(returned.log_prob, scored.log_prob.detach(), atol=1e-10, rtol=0)
    for parameter, gradient in zip(domain.module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-10, rtol=1e-8)


def test_demonstrations_are_the_cross_entropy_of_their_targets(build):
    domain = build()
    samples = domain.demonstrations(5, streams=Streams(0), step=3)
    scored = domain.score(samples, everything(samples), frozenset({"log_prob"}))
    expected = []
    for row in range(5):
        prompt = samples.payload["prompt_ids"][row]
        tokens = samples.payload["tokens"][row, : samples.payload["length"][row]].tolist()
        logits = domain.module(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        expected.append(torch.nn.functional.cross_entropy(logits, torch.tensor(tokens), reduction="sum"))
        assert tokens[-1] == domain.tokenizer.eos_token_id
        assert samples.auxiliary_count["supervised"][row] == len(tokens)
    torch.testing.assert_close(scored.auxiliary["supervised"], torch.stack(expected), atol=1e-10, rtol=1e-10)
    # The same sum through known cotangents: d loss / d supervised = 1.
    scored.auxiliary["supervised"].sum().backward()
    expected_gradient = [parameter.grad.clone() for parameter in domain.module.parameters()]
    domain.module.zero_grad()
    zero = torch.zeros_like(samples.old_log_prob, dtype=torch.float64)
    domain.backward(
        samples, everything(samples), Scored(zero, auxiliary={"supervised": torch.ones(5, dtype=torch.float64)})
    )
    for parameter, gradient in zip(domain.module.parameters(), expected_gradient, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-10, rtol=1e-8)


def test_demonstrations_of_a_chat_end_where_sampling_of_the_folder_ends(build, tmp_path):
    tokenizer = calling_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "<eos>", "additional_special_tokens": ["<end_of_turn>"]})
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ eos_token }}", "<end_of_turn>")
    model: Any = small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<end_of_turn>")]
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    rows = [{"prompt": [{"role": "user", "content": f"{a} plus 3 ?"}], "answer": f"answer {a + 3}"} for a in range(4)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    domain = build(
        model={"kind": "pretrained", "path": str(tmp_path / "model"), "dtype": "float32"},
        data={
            "source": {"kind": "files", "paths": [str(tmp_path / "rows.json")]},
            "num_train": None,
            "num_held_out": 1,
        },
        demonstrations={"num": None, "column": "answer"},
        rewards={"worked": None},
    )
    samples = domain.demonstrations(1, streams=Streams(0), step=0)
    text = domain.tokenizer.decode(samples.payload["tokens"][0])
    assert re.fullmatch(r"answer \d ?<end_of_turn>", text), text


def test_rewards_see_the_text_and_the_columns(build):
    domain = build(rewards={"short": {"kind": "soft_overlong", "max_length": 8, "cache_length": 8}})
    samples = sample(domain)
    table = domain.reward(samples)
    assert set(table.values) == {"correct", "short"}, "a judge is not asked while training"
    assert table.values["short"] == [-length / 8 for length in samples.payload["length"].tolist()]
    for row, record in enumerate(domain.describe(samples, everything(samples))):
        answer = record["text"].rpartition("answer")[2].split("\n")[0].strip() if "answer" in record["text"] else None
        assert table.values["correct"][row] == float(
            answer == samples.prompts[int(samples.group[row])].columns["answer"]
        )
    json.dumps(domain.describe(samples, everything(samples)))


def test_a_conversations_environment_tokens_are_read_and_never_trained_on(build):
    domain = build(**GAME)
    samples = sample(domain, prompts=3, group=4)
    replies = {token for text in ("higher", "lower", "number ?") for token in domain.tokenizer.encode(text)}
    turns = 0
    for row, messages in enumerate(samples.payload["messages"]):
        own = [message["content"] for message in messages if message["role"] == "assistant"]
        turns = max(turns, len(own))
        masked_out = samples.payload["tokens"][row, : samples.payload["length"][row]][
            ~samples.mask[row, : samples.payload["length"][row]]
        ]
        said = [message["content"] for message in messages if message["role"] == "user"]
        # An untrained model may write such a word itself; what is masked out is exactly what the environment said.
        assert domain.tokenizer.decode(masked_out) == " ".join(said[: len(own) - 1] if len(said) == len(own) else said)
        assert set(masked_out.tolist()) <= replies
    assert turns == 3
    scored = domain.score(samples, everything(samples), frozenset({"log_prob"}))
    torch.testing.assert_close(
        scored.log_prob.masked_fill(~samples.mask, 0.0), samples.old_log_prob, atol=1e-10, rtol=0
    )
    table = domain.reward(samples)
    assert table.values["environment"] == samples.payload["environment"]
    assert table.weights == {"environment": 1.0}


def test_rewards_read_the_turn_that_a_limit_cut_off(build):
    domain = build(**{**GAME, "sampling": {"max_new_tokens": 4}})
    samples = sample(domain, prompts=3, group=4)
    assert bool(samples.truncated.any())
    for row, messages in enumerate(samples.payload["messages"]):
        own = [message["content"] for message in messages if message["role"] == "assistant"]
        assert own, "a reward finds at least one message"
        decisions = samples.payload["tokens"][row][samples.mask[row]]
        assert domain.tokenizer.decode(decisions, skip_special_tokens=True).split() == " ".join(own).split()
        assert messages.parsed == messages


def test_evaluation_is_greedy_and_sampled_and_the_same_twice(build):
    domain = build(evaluation={"num_samples": 2, "num_texts": 1})
    first, second = domain.evaluate(streams=Streams(0)), domain.evaluate(streams=Streams(0))
    assert first == second
    assert set(domain.metric_names) == set(first.metrics)
    assert {
        "greedy/correct",
        "greedy/worked",
        "sampled/correct",
        "sampled/worked",
        "sampled/pass@2",
        "greedy/length",
    } <= set(first.metrics)
    assert len(first.records) == 6 * 3
    greedy = [record for record in first.records if record["mode"] == "greedy"]
    assert first.metrics["greedy/correct"] == sum(record["rewards"]["correct"] for record in greedy) / 6
    assert domain.evaluate(streams=Streams(1)).metrics["greedy/length"] == first.metrics["greedy/length"]
    tuned = build(evaluation={"num_prompts": 2}, **{"rewards": {"worked": None}})
    assert len(tuned.evaluate(streams=Streams(0)).records) == 4


def test_the_saved_folder_is_plain_transformers(build, tmp_path):
    domain = build()
    domain.save(tmp_path)
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    prompt = domain.prompts([0])[0].columns["prompt"]
    ids = torch.tensor([tokenizer.encode(prompt)])
    torch.testing.assert_close(model(ids).logits, domain.module(ids).logits)
    # And it is a model that the domain loads, with the same greedy answers.
    again = build(model={"kind": "pretrained", "path": str(tmp_path)})
    assert again.evaluate(streams=Streams(0)).metrics == domain.evaluate(streams=Streams(0)).metrics


def test_settings_that_cannot_train_are_refused(build):
    with pytest.raises(
        ConfigError, match="leaves no room for a prompt in the model's context of 64 tokens; write at most 63"
    ):
        build(sampling={"max_new_tokens": 64})
    with pytest.raises(ConfigError, match=r"sampling_schedule.max_new_tokens = 64 leaves no room"):
        build(sampling_schedule={"max_new_tokens": {"kind": "linear", "start": 8, "end": 64, "num_steps": 9}})
    with pytest.raises(RewardError, match="reward 'correct' needs the column 'solution'"):
        build(rewards={"correct": {"column": "solution"}})
    with pytest.raises(RewardError, match="'environment' needs the column 'secret'"):
        build(environment={"kind": "guess_the_number"})


def test_the_log_says_how_many_rows_were_left_out(build):
    # `sort 1 2 3 ?` has five words, `sort 1 2 3 4 ?` six.
    sorting = {
        "data": {"source": {"kind": "sorting", "min_length": 3, "max_length": 4}},
        "max_prompt_tokens": 5,
        "rewards": {"worked": None},
    }
    dropped, cut = (build(**sorting, overlong=overlong) for overlong in ("drop", "truncate"))
    num = dropped.counts["num_dropped"]
    assert num == cut.counts["num_truncated"] > 0
    assert dropped.remarks == [f"data: prompts left out, longer than 5 tokens (domain.overlong = 'drop'): {num}"]
    assert cut.remarks == [f"data: prompts cut on the left, longer than 5 tokens (domain.overlong = 'truncate'): {num}"]
    assert build().remarks == []


def test_a_batch_whose_prompts_were_cut_is_compared_with_its_server(build):
    cut = build(
        data={"source": {"kind": "sorting", "min_length": 3, "max_length": 4}},
        max_prompt_tokens=5,
        overlong="truncate",
        rewards={"worked": None},
    )
    compared = []
    cut.policy.engine.check_scored = lambda expected, served: compared.append(len(expected))
    for settings, count in (({}, 1), ({"top_p": 0.5}, 0), ({"top_k": 3}, 0)):
        samples = cut.sample(
            cut.prompts([0]), 2, streams=Streams(0), step=0, settings=settings, requires=frozenset({"log_prob"})
        )
        cut.check_scored(replace(samples, behaviour_log_prob=samples.old_log_prob))
        assert compared == [int(samples.mask.sum())] * count
        compared.clear()


def test_a_mixture_of_experts_says_that_nothing_balances_its_load_and_its_gradient_has_no_such_term(build, tmp_path):
    from transformers import MixtralConfig, MixtralForCausalLM

    domain = build()
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_local_experts": 4,
    }
    config = MixtralConfig(
        **sizes,
        vocab_size=len(domain.tokenizer),
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=0,
        router_aux_loss_coef=0.5,
    )
    torch.manual_seed(0)
    MixtralForCausalLM(config).save_pretrained(tmp_path)
    domain.tokenizer.save_pretrained(tmp_path)
    # Experts are multiplied together in a product that knows no fp64.
    mixture = build(model={"kind": "pretrained", "path": str(tmp_path), "dtype": "float32"}, demonstrations=None)
    assert any(
        "no loss that balances the experts' load is added (router_aux_loss_coef = 0.5" in remark
        for remark in mixture.remarks
    )
    samples = mixture.sample(
        mixture.prompts([0, 1]), 2, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    scored = mixture.score(samples, torch.arange(4), frozenset({"log_prob"}))
    assert set(scored.auxiliary) == set()
    # The router learns all the same: from the log-probs.
    scored.log_prob.sum().backward()
    router = next(
        weight for name, weight in mixture.module.named_parameters() if "gate.weight" in name or "router" in name
    )
    assert router.grad is not None
    assert router.grad.abs().max() > 0
