# pyright: reportArgumentType=false
"""Runs on Python objects: what a run writes about them, what a resume asks for, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.domain.callable.reach import Reach
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification

import groupwise
from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.config import ConfigError
from groupwise.experiment.loaded_run import evaluations, final_scores
from groupwise.reward import ExactAnswer
from groupwise.streams import Streams

ROWS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(4)]
SMALL: dict[str, Any] = {
    "train": {"num_steps": 2, "prompts_per_step": 2, "group_size": 3},
    "domain.sampling.max_new_tokens": 3,
    "track.console": "none",
    "checkpoint.every": 1,
}


def pair(seed: int = 0) -> tuple[Any, Any]:
    tokenizer = character_tokenizer("0123456789+=")
    return small_model(SmallModelConfig(hidden_size=8, num_layers=1, num_heads=2), tokenizer, seed=seed), tokenizer


def brief(completions: Sequence[str], **columns: Any) -> list[float]:
    return [1.0 / (1 + len(completion)) for completion in completions]


def closure(digit: str) -> Callable[..., list[float]]:
    def has_digit(completions: Sequence[str], **columns: Any) -> list[float]:
        return [float(digit in completion) for completion in completions]

    return has_digit


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    folder, steps = tmp_path_factory.mktemp("from_python") / "run", []
    groupwise.train(
        pair(),
        rewards={"brief": brief, "digit": closure("1"), "exact": ExactAnswer(weight=0.5)},
        data=ROWS,
        objective="dapo",
        callbacks=[lambda step, metrics: steps.append(step)],
        out=folder,
        seed=4,
        **SMALL,
    )
    return folder, steps


def test_a_run_on_objects_says_what_it_cannot_describe(trained: tuple[Path, list[int]]) -> None:
    folder, steps = trained
    config = json.loads((folder / "config.json").read_text())
    assert steps == [1, 2]
    assert (config["seed"], config["method"], config["train"]["group_size"]) == (4, "dapo", 3)
    assert set(config["objects"]) == {"model", "tokenizer", "rewards_digit", "data", "callbacks_0"}
    digit = config["objects"]["rewards_digit"]
    assert digit == {"argument": "rewards['digit']", "type": "function closure.<locals>.has_digit"}
    assert config["objects"]["data"]["type"] == "list of 20"
    assert config["domain"]["rewards"]["brief"]["path"] == f"{__name__}:brief", "a function of a module has a path"
    assert config["domain"]["rewards"]["exact"]["kind"] == "exact_answer"
    assert config["domain"]["data"]["num_held_out"] is None  # a tenth


def test_what_needs_an_object_names_it_and_what_needs_none_works(trained: tuple[Path, list[int]]) -> None:
    folder, _ = trained
    loaded = groupwise.load_run(folder)
    assert loaded.metrics.num_rows >= 2
    with pytest.raises(ConfigError, match=r"^groupwise.objects:data is a Python object .*load_run\(FOLDER\).domain"):
        loaded.domain(run_code=True)
    domain = loaded.domain(rewards={"digit": closure("1")}, data=ROWS, run_code=True)
    with torch.no_grad():
        metrics = domain.evaluate(streams=Streams(4)).metrics
    assert metrics[loaded.summary["metric"]] == pytest.approx(loaded.summary["after"])


def test_a_resume_asks_for_the_objects_in_one_line(trained: tuple[Path, list[int]]) -> None:
    folder, _ = trained
    with pytest.raises(ConfigError) as error:
        groupwise.resume(folder)
    message = str(error.value)
    assert "\n" not in message
    assert "rewards['digit'] (function closure.<locals>.has_digit), " in message
    assert f"groupwise.resume({str(folder)!r}, model=..., rewards=..., data=..., callbacks=...)" in message
    assert "resume=True" in message


def test_a_run_that_was_cut_off_ends_with_the_same_bits(trained: tuple[Path, list[int]], tmp_path: Path) -> None:
    uninterrupted, _ = trained

    def fail(step: int, metrics: Any) -> None:
        raise KeyboardInterrupt

    arguments = {"rewards": {"brief": brief, "digit": closure("1"), "exact": ExactAnswer(weight=0.5)}, "data": ROWS}
    settings = {"objective": "dapo", "out": tmp_path / "run", "seed": 4, **SMALL}
    with pytest.raises(KeyboardInterrupt):
        groupwise.train(pair(), callbacks=[fail], **arguments, **settings)
    with pytest.raises(ConfigError, match=r"began with other settings: seed = 5 \(4 there\)"):
        groupwise.train(pair(), callbacks=[fail], resume=True, **arguments, **{**settings, "seed": 5})
    result = groupwise.train(pair(), callbacks=[lambda step, metrics: None], resume=True, **arguments, **settings)
    assert result.summary["steps"] == 2
    assert weights(tmp_path / "run") == weights(uninterrupted)


@pytest.mark.slow
def test_another_object_than_before_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {**SMALL, "track.console": "lines"}

    def fail(step: int, metrics: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        groupwise.train(
            pair(),
            rewards=lambda completions: [1.0] * len(completions),
            data=ROWS,
            callbacks=[fail],
            out=tmp_path / "run",
            **changes,
        )
    capsys.readouterr()
    groupwise.resume(
        tmp_path / "run",
        model=pair(),
        rewards=lambda completions: [0.0] * len(completions),
        data=ROWS,
        callbacks=[fail][:0] or [lambda step, metrics: None],
    )
    output = capsys.readouterr().out
    assert "groupwise.objects:rewards_reward differs from the start before" in output
    starts = json.loads((tmp_path / "run" / "environment.json").read_text())["starts"]
    first, second = (start["sources"]["groupwise.objects:rewards_reward"] for start in starts)
    assert "[1.0] * len(completions)" in first
    assert "[0.0] * len(completions)" in second
    with pytest.raises(ConfigError, match=r"it has no use for rewards\['has_digit'\]"):
        groupwise.resume(
            tmp_path / "run",
            model=pair(),
            data=ROWS,
            callbacks=[fail],
            rewards=[lambda completions: [0.0], closure("1")],
        )


@pytest.mark.slow
@pytest.mark.parametrize("init", [True, "pissa"])
def test_the_reference_of_an_adapter_that_was_trained_before_is_where_this_run_began(
    init: bool | str, tmp_path: Path
) -> None:
    model, tokenizer = pair()
    adapted = get_peft_model(
        model, LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear", init_lora_weights=init)
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator))
    groupwise.train(
        (adapted, tokenizer), rewards=brief, data=ROWS, method="grpo", out=tmp_path / "run", seed=1, **SMALL
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    divergences = [row["kl"] for row in map(json.loads, lines) if "kl" in row]
    assert len(divergences) == 2
    assert abs(divergences[0]) < 1e-9


def test_an_argument_replaces_what_the_experiment_says(tiny: Path, tmp_path: Path) -> None:
    groupwise.train(
        tiny,
        rewards=[closure("1")],
        out=tmp_path / "run",
        controls=False,
        train={"prompts_per_step": 2},
        **{"stages.grpo.num_steps": 1},
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert list(config["domain"]["rewards"]) == ["has_digit"]


def test_an_objective_is_taken_as_it_is(tiny: Path, tmp_path: Path) -> None:
    objective = groupwise.Objective.preset("dr_grpo", **{"trust.high": 0.4})
    with pytest.raises(ConfigError, match="is not a metric of this domain"):
        groupwise.train(tiny, objective=objective, out=tmp_path / "a", **{"train.metric": "greedy/other"})
    groupwise.train(
        tiny,
        objective=objective,
        out=tmp_path / "run",
        controls=False,
        **{"stages.grpo.num_steps": 1},
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == "dr_grpo"
    assert {key: config[key] for key in objective.model_dump(exclude={"name"})} == objective.model_dump(
        mode="json", exclude={"name"}
    )


@pytest.mark.slow
def test_streams_and_data_sets_are_rows(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(ROWS)
    groupwise.train(pair(), rewards=brief, data=data, eval_data=ROWS[:3], out=tmp_path / "a", **SMALL)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["domain"]["data"]["num_held_out"] == 3
    with pytest.raises(ConfigError, match="num_train is missing"):
        groupwise.train(pair(), rewards=brief, data=data.to_iterable_dataset(), out=tmp_path / "b", **SMALL)
    sizes = {"domain.data.num_train": 4, "domain.data.num_held_out": 2}
    groupwise.train(pair(), rewards=brief, data=data.to_iterable_dataset(), out=tmp_path / "b", **sizes, **SMALL)


@pytest.mark.slow
def test_the_folder_of_a_reward_model_is_a_reward(tmp_path: Path) -> None:
    tokenizer = pair()[1]
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "num_labels": 1}
    LlamaForSequenceClassification(LlamaConfig(**sizes, **ids)).save_pretrained(tmp_path / "judge")
    tokenizer.save_pretrained(tmp_path / "judge")
    groupwise.train(pair(), rewards=[str(tmp_path / "judge"), brief], data=ROWS, out=tmp_path / "run", **SMALL)
    rewards = json.loads((tmp_path / "run" / "config.json").read_text())["domain"]["rewards"]
    assert {name: reward["kind"] for name, reward in rewards.items()} == {"reward": "reward_model", "brief": "callable"}


@pytest.mark.slow
def test_several_evaluation_sets_have_metrics_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "hard.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{digit}{digit}+1=", "answer": "?"}) + "\n" for digit in "123"))
    sets = {"easy": datasets.Dataset.from_list(ROWS[:2]), "hard": str(file), "stream": datasets.Dataset.from_list(ROWS)}
    sets["stream"] = sets["stream"].to_iterable_dataset()
    settings = {**SMALL, "track.console": "lines", "domain.data.num_held_out": 1, "train.metric": "hard/greedy/reward"}

    def train(name: str) -> Any:
        return groupwise.train(pair(), rewards=brief, data=ROWS, eval_data=sets, out=tmp_path / name, **settings)

    result = train("a")
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    names = {name.rpartition("/")[0] for line in lines for name in line if name.endswith("/brief")}
    assert names == {f"eval/{name}/{mode}" for name in ("easy", "hard", "stream") for mode in ("greedy", "sampled")}
    # Two rows are of the set easy, the first of them of the stream too: they alone are not trained on.
    assert "evaluated on others" not in (said := capsys.readouterr().out)
    assert "rows left out of training, because a held-out prompt asks the same: 2" in said
    records = evaluations(tmp_path / "a")[2]
    sizes = {mode: sum(record["mode"] == mode for record in records) for mode in {record["mode"] for record in records}}
    assert sizes["easy/greedy"] == 2
    assert sizes["hard/greedy"] == 3
    assert sizes["stream/greedy"] == 1
    assert len(final_scores(tmp_path / "a")) == 3
    assert result.summary["metric"] == "hard/greedy/reward"
    with pytest.raises(ConfigError, match=r"eval_data\['easy'\] \(Dataset.*eval_data\['stream'\]"):
        groupwise.resume(tmp_path / "a", model=pair(), rewards=brief, data=ROWS)
    assert (
        groupwise.resume(tmp_path / "a", model=pair(), rewards=brief, data=ROWS, eval_data=sets, run_code=True).summary[
            "steps"
        ]
        == 2
    )


REACH: dict[str, Any] = {"train": {"num_steps": 2, "prompts_per_step": 2, "group_size": 4}, "track.console": "none"}


def test_a_domain_object_is_described_by_its_class_and_settings(tmp_path: Path) -> None:
    domain = Reach(Reach.Settings(deviation=0.2), streams=Streams(7), device="cpu")
    initial = float(domain.module[0].bias.detach().sum())
    groupwise.train(domain=domain, out=tmp_path / "run", **REACH)
    assert float(domain.module[0].bias.detach().sum()) != initial, "the object itself is trained"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["domain"]["path"] == "tests.domain.callable.reach:Reach"
    assert config["domain"]["settings"] == {"num_train": 64, "num_actions": 5, "deviation": 0.2}
    assert list(config["objects"]) == ["domain_instance"]
    opened = groupwise.load_run(tmp_path / "run").domain(run_code=True)
    assert torch.equal(opened.module[0].bias, domain.module[0].bias)


def test_a_domain_that_a_program_built_is_asked_for_again(tmp_path: Path) -> None:
    def fail(step: int, metrics: Any) -> None:
        raise KeyboardInterrupt

    def built() -> Any:
        return Reach(Reach.Settings(), streams=Streams(7), device="cpu")

    with pytest.raises(KeyboardInterrupt):
        groupwise.train(domain=built(), callbacks=[fail], out=tmp_path / "run", seed=1, **REACH)
    callbacks = [lambda step, metrics: None]
    with pytest.raises(ConfigError, match=r"domain \(Reach.*resume\(.*, domain=\.\.\.\)"):
        groupwise.resume(tmp_path / "run", callbacks=callbacks, run_code=True)
    resumed = groupwise.resume(tmp_path / "run", domain=built(), callbacks=callbacks, run_code=True)
    assert resumed.summary["steps"] == 2


def test_a_domain_of_a_function_is_an_object_and_a_class_of_one_too(tmp_path: Path) -> None:
    class Local(Reach):
        pass

    groupwise.train(domain=Local(Reach.Settings(), streams=Streams(0), device="cpu"), out=tmp_path / "a", **REACH)
    assert json.loads((tmp_path / "a" / "config.json").read_text())["domain"]["path"] == "groupwise.objects:domain"
    groupwise.train(domain=Local, out=tmp_path / "b", **REACH, **{"domain.settings.deviation": 0.5})
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (list(config["objects"]), config["domain"]["settings"]["deviation"]) == (["domain"], 0.5)
    assert groupwise.load_run(tmp_path / "b").domain(domain=Local).num_prompts == 64
    with pytest.raises(ConfigError, match=r"domain \(class .*Local.*resume\(.*, domain=\.\.\.\)"):
        groupwise.resume(tmp_path / "b")


def test_a_module_is_trained_for_a_domain(tmp_path: Path) -> None:
    module = nn.Linear(4, 2)
    initial_bias = module.bias.detach().clone()
    groupwise.train(module, domain=Reach, out=tmp_path / "run", **REACH)
    assert not torch.equal(module.bias, initial_bias)


class _Positional:
    def __call__(self, texts: Any, /) -> list[float]:
        return []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "experiment_or_model: nothing was given"),
        ({"experiment_or_model": 3}, "experiment_or_model: an object of type int was given; allowed: an Experiment"),
        (
            {"experiment_or_model": pair()[0]},
            r"Qwen3ForCausalLM was given; a language model needs its tokenizer; write",
        ),
        ({"experiment_or_model": pair()[::-1]}, r"model\[0\]: an object of type .*write \(model, tokenizer\)"),
        ({"experiment_or_model": (pair()[0], 3)}, r"model\[1\]: an object of type int was given; write"),
        ({"experiment_or_model": nn.Linear(1, 1)}, "of type torch.nn.modules.linear.Linear was given; .*give domain="),
        ({"rewards": 3}, r"rewards\['reward'\]: an object of type int was given; allowed: a function"),
        (
            {"rewards": "some/judge"},
            r"rewards\['reward'\]: 'some/judge' is no function; .*RewardModel\(path='some/judge'",
        ),
        ({"rewards": [pair()[0]]}, r"of type .*Qwen3ForCausalLM was given; .*RewardModel\(path=FOLDER\)"),
        ({"rewards": []}, "rewards: none was given; give a function"),
        (
            {"rewards": lambda: [1.0]},
            r"<lambda> cannot be called as reward.*write def reward",
        ),
        ({"rewards": _Positional()}, "_Positional cannot be called as reward"),
        (
            {"rewards": lambda completions, colour: [1.0], "data": ROWS},
            "needs the column 'colour', which the data lacks",
        ),
        ({"data": [{"question": "1+1="}] * 9}, "data.prompt_column = 'prompt': the data have no such column; columns"),
        ({"data": ["1+1="]}, "data: row 0 is of type str; a row is a dict such as"),
        ({"data": iter(ROWS)}, r"data: .*list_iterator was given; allowed: .*; write list\(data\)"),
        ({"data": {"prompt": ["a"]}}, r"data: an object of type dict was given; allowed"),
        ({"data": []}, "data: it holds no rows"),
        ({"data": None, "eval_data": ROWS}, "eval_data: .*give data as well"),
        ({"eval_data": {}}, r"eval_data: the dict names no set; write"),
        ({"eval_data": {"a": ROWS, "b": []}}, r"eval_data\['b'\]: it holds no rows; give at least one"),
        ({"eval_data": {"a": ROWS[:3]}, "data": ROWS[:3]}, r"data: all 3 rows .*are evaluated on too"),
        ({"eval_data": "rows.jsonl"}, "eval_data: one of data and eval_data is a file"),
        ({"callbacks": brief}, "callbacks: an object of type function was given; give a list"),
        ({"callbacks": [3]}, r"callbacks\[0\]: an object of type int was given"),
        ({"objective": 3}, "objective: an object of type int was given; allowed: a groupwise.Objective"),
        ({"objective": "dapoo"}, "no method is called 'dapoo'; did you mean dapo"),
        ({"domain": 3}, "domain: an object of type int was given; allowed: an object or a class"),
        ({"domain": "langage"}, "domain = 'langage': no such kind; allowed: .*did you mean language"),
        ({"num_steps": 3}, "num_steps = 3: unknown key; did you mean train.num_steps"),
        ({"train": {"num_steps": 3}, "train.num_steps": 4}, "train.num_steps: is written twice"),
        (
            {"experiment_or_model": "nobody/no-such-model"},
            "path = 'nobody/no-such-model': there is no such folder here",
        ),
        ({"experiment_or_model": "nowhere/model.Q4_K_M.gguf"}, "model.Q4_K_M.gguf'"),
        ({"optimiser": {"learning_rate": brief}}, "optimiser.learning_rate: an object of type function was given"),
        ({"resume": True}, "resume = True: out is missing"),
        ({"callbacks": [lambda: None]}, r"is called as f\(step, metrics\), and its signature is \(\)"),
    ],
)
def test_what_cannot_be_used_is_one_line(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    call = {"experiment_or_model": pair(), "rewards": brief, "data": ROWS, "out": tmp_path / "run", **arguments}
    if not arguments:
        call = {}
    if "resume" in arguments:
        call.pop("out")
    with pytest.raises(ValueError, match=message) as error:
        groupwise.train(**call)
    assert "\n" not in str(error.value)
    assert "pydantic" not in str(error.value).lower()
    assert not (tmp_path / "run").exists()


PROGRAM = """
import asyncio, os, signal, sys
import groupwise
from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model

rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(4)]
tokenizer = character_tokenizer("0123456789+=")
model = small_model(SmallModelConfig(hidden_size=8, num_layers=1, num_heads=2), tokenizer, seed=0)

async def correct(completions, answer):
    await asyncio.sleep(0)
    return [float(a in c) for c, a in zip(completions, answer)]

def stop(step, metrics):
    if os.environ.get("STOP") == str(step):
        os.kill(os.getpid(), signal.SIGKILL)

async def cell():
    return groupwise.train(
        (model, tokenizer), rewards=[correct, lambda completions: [len(c) / 9 for c in completions]], data=rows,
        callbacks=[stop], out=os.environ["RUN"], resume=True, seed=3, train=dict(num_steps=4, prompts_per_step=2),
        checkpoint=dict(every=2), **{"domain.sampling.max_new_tokens": 3, "track.console": "none"},
    )

print("steps", asyncio.run(cell()).summary["steps"])
"""


@pytest.mark.nightly
def test_a_killed_program_without_a_file_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Functions of `__main__` that no file holds, inside a running event loop, as in a notebook."""

    def program(folder: Path, stop: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RUN": str(folder), "STOP": stop, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-"], input=PROGRAM, text=True, capture_output=True, env=environment, cwd=tmp_path
        )

    uninterrupted = program(tmp_path / "whole")
    assert uninterrupted.stdout == "steps 4\n", uninterrupted.stderr
    assert program(tmp_path / "cut", stop="3").returncode == -signal.SIGKILL
    assert not (tmp_path / "cut" / "model").exists()
    command = [sys.executable, "-m", "groupwise", "resume", str(tmp_path / "cut")]
    refused = subprocess.run(command, text=True, capture_output=True)
    assert refused.returncode != 0
    assert "rewards['correct'] (function correct" in refused.stderr
    assert program(tmp_path / "cut").stdout == "steps 4\n"
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
