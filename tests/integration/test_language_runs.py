"""Every setting that people train language models with, in whole runs of a few steps on model folders as transformers
writes them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.integration.small import experiment, rollouts, rows, weights
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise import train
from groupwise.checkpoint import load_tree
from groupwise.experiment.runner import job_of, open_domain, resume
from groupwise.memory import peak_bytes
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.run.loop import autocast_of
from groupwise.training.step.passes import _measure
from groupwise.training.step.state import Progress, Step, TrainState

LOG_PROB = frozenset({"log_prob"})
KL = ["divergence.kind=k3", "divergence.beta=0.1"]
LORA = ["domain.model.lora.r=4", "domain.model.lora.dropout=0.1"]
# A large eps: Adam divides small gradients by small moments, which would magnify rounding.
EXACT = ["domain.model.dtype=float64", "optimiser.eps=1e-2"]


def cut_back(run: Path, step: int, to: Path) -> Path:
    """The folder as a run killed just after `step` leaves it."""
    shutil.copytree(run, to)
    for path in (to / "checkpoints").glob("step-*"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    shutil.rmtree(to / "model")
    (to / "summary.json").unlink()
    return to


@pytest.fixture(params=["qwen", pytest.param("gpt2", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_a_folder_trains_and_comes_back_as_one(model: Path, tmp_path: Path) -> None:
    run = train(experiment(model), out=tmp_path / "run").folder.path
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (model, run / "model"))
    assert type(after) is type(before)
    assert AutoTokenizer.from_pretrained(run / "model").encode("sort 1 2 ?") == AutoTokenizer.from_pretrained(
        model
    ).encode("sort 1 2 ?")
    trained = weights(run, 2)
    for (name, start), (_, end) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert torch.equal(end, trained[name])
        assert not torch.equal(start, end), name
    assert all(row["grad_norm"] > 0 and row["updates/taken"] == 1 for row in rows(run)[1:])


SAVING = {
    "one by one": ["train.micro_batch_members=1"],
    "five": ["train.micro_batch_members=5"],
    "recomputed": ["train.gradient_checkpointing=true"],
    "both": ["train.gradient_checkpointing=true", "train.micro_batch_members=3"],
    "fitted": ["train.micro_batch_members=auto", "train.memory_limit_gib=0.01"],
}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "names"), [(family, list(SAVING)) for family in ("gpt2", "qwen")])
def test_what_saves_memory_changes_no_gradient(
    family: str, names: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: Path = request.getfixturevalue(family)
    usual = [*EXACT, *KL, "entropy=0.01", "train.updates_per_batch=2", "train.minibatches=2"]
    # GPT-2 computes in fp64 throughout; Qwen3's norms and rotations go through fp32.
    atol = 1e-12 if family == "gpt2" else 1e-6
    expected = train(experiment(model, *usual), out=tmp_path / "usual").folder.path
    for name in names:
        found = train(experiment(model, *usual, *SAVING[name]), out=tmp_path / name).folder.path
        # A limit below what the process holds already: one member at a time, which is said.
        assert {row.get("micro_batch_members") for row in rows(found)[1:]} == ({1} if name == "fitted" else {None})
        for tensor, value in weights(expected, 2).items():
            torch.testing.assert_close(
                weights(found, 2)[tensor], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
            )
        for one, other in zip(rows(found), rows(expected), strict=True):
            same = {
                key: value
                for key, value in one.items()
                if key not in ("padding_share/update", "on_policy_fraction") and isinstance(value, float)
            }
            assert same == pytest.approx({key: other[key] for key in same}, rel=100 * atol, abs=100 * atol), name


def test_what_a_pass_will_take_is_foretold(model: Path) -> None:
    chosen = experiment(
        model,
        "train.micro_batch_members=auto",
        "train.memory_limit_gib=100",
        "domain.sampling.max_new_tokens=30",
        "entropy=0.01",
    )
    domain, recipe = open_domain(chosen), job_of(chosen).recipes[0]
    state = TrainState(Progress(), recipe.objective.init(), domain.learner)
    requires = recipe.objective.requires
    samples = domain.sample(domain.prompts(range(8)), 8, streams=Streams(0), step=0, settings={}, requires=requires)
    step = Step(domain, recipe, state, Streams(0), World())
    one, per_member, _ = _measure(step, samples, samples.mask.sum(1), requires)
    assert all(parameter.grad is None for parameter in domain.module.parameters())

    def passed(rows: torch.Tensor) -> None:
        scored = domain.score(samples, rows, requires)
        sum(value.sum() for value in scored.tensors().values()).backward()

    def peak(rows: torch.Tensor) -> int:
        passed(rows)
        return peak_bytes(lambda: passed(rows), torch.device("cpu"))

    # One member of each group, as it was measured; members of one group share their prompt and take less.
    apart = torch.arange(0, len(samples), 8)
    assert 0.7 <= peak(apart) / (one + (len(apart) - 1) * per_member) <= 1.1
    assert 0.4 <= peak(torch.arange(len(samples))) / (one + (len(samples) - 1) * per_member) <= 1.1


def test_an_adapter_trains_alone_against_its_base_and_is_saved_merged(model: Path, tmp_path: Path) -> None:
    run = train(
        experiment(model, *KL, "domain.model.lora.r=4", "optimiser.learning_rate=0.02", "train.num_steps=3"),
        out=tmp_path / "run",
    ).folder.path
    trained = weights(run, 3)
    assert {name.split(".")[-3] for name in trained} == {"lora_A", "lora_B"}
    assert all(min(tensor.shape) == 4 for tensor in trained.values())
    divergence = [row["kl"] for row in rows(run)[1:]]
    assert divergence[0] == pytest.approx(0, abs=1e-9), (
        "the adapter begins as nothing, so the policy begins as its reference"
    )
    assert divergence[2] > 1e-4
    kept = load_tree(run / "checkpoints" / "step-3")["reference"]["weights"]
    assert {name for name in kept if ".lora_" in name} == set(trained), "the reference is a copy of the adapter"
    assert all(bool((tensor == 0).all()) for name, tensor in kept.items() if ".lora_B." in name)
    # The folder is the base plus B A alpha / r, without a trace of the adapter.
    assert not list((run / "model").glob("adapter*"))
    base, merged = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (model, run / "model"))
    for name in [name for name in trained if ".lora_A." in name]:
        plain = name.removeprefix("base_model.model.").replace(".lora_A.default", "")
        update = 16 / 4 * trained[name.replace("lora_A", "lora_B")] @ trained[name]
        # GPT-2 keeps its matrices as [in, out].
        change = merged[plain] - base[plain]
        torch.testing.assert_close(change.t() if "gpt2" in str(model) else change, update, rtol=0, atol=1e-6)
    frozen = set(base) - {name.removeprefix("base_model.model.").replace(".lora_A.default", "") for name in trained}
    assert all(torch.equal(base[name], merged[name]) for name in frozen)


@pytest.mark.parametrize(
    "settings",
    [
        LORA,
        pytest.param(["domain.model.dtype=bfloat16"], marks=pytest.mark.slow),
        pytest.param(["train.autocast=bfloat16", "train.gradient_checkpointing=true"], marks=pytest.mark.slow),
    ],
)
def test_a_run_cut_off_goes_on_to_the_same_bits(qwen: Path, tmp_path: Path, settings: list[str]) -> None:
    usual = [
        *KL,
        "train.num_steps=4",
        "train.updates_per_batch=2",
        "train.evaluate_every=2",
        "checkpoint.keep_last=9",
        "reference.kind=ema",
    ]
    whole = train(experiment(qwen, *usual, *settings), out=tmp_path / "whole").folder.path
    run = cut_back(whole, 2, tmp_path / "run")
    assert resume(run).summary["steps"] == 4
    assert rows(run) == rows(whole)
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in (run, whole))
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.slow
def test_half_precision_weights_give_fp32_log_probs_and_say_what_they_lose(
    qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = experiment(qwen, "domain.model.dtype=bfloat16", "track.console=lines", "train.updates_per_batch=2")
    domain = open_domain(chosen)
    samples = domain.sample(domain.prompts([0, 1]), 2, streams=Streams(0), step=0, settings={}, requires=LOG_PROB)
    scored = domain.score(samples, torch.arange(4), LOG_PROB).log_prob
    assert samples.old_log_prob.dtype == scored.dtype == torch.float32
    # The sampler's numbers are a rescoring's, up to the rounding of hidden states to 8 bits.
    assert (scored - samples.old_log_prob)[samples.mask].abs().max() < 0.2
    run = train(chosen, out=tmp_path / "run").folder.path
    assert {value.dtype for value in load_file(run / "model" / "model.safetensors").values()} == {torch.bfloat16}
    assert "bfloat16 and are trained as they are" in capsys.readouterr().out


@pytest.mark.slow
def test_autocast_sees_every_update(qwen: Path, tmp_path: Path) -> None:
    chosen = experiment(qwen, "train.autocast=bfloat16", "train.updates_per_batch=3")
    domain = open_domain(chosen)
    recipe = job_of(chosen).recipes[0]
    samples = domain.sample(domain.prompts([0, 1]), 2, streams=Streams(0), step=0, settings={}, requires=LOG_PROB)

    def scored() -> torch.Tensor:
        return domain.score(samples, torch.arange(4), LOG_PROB).log_prob.detach()

    with autocast_of(recipe, torch.device("cpu")):
        before = scored()
        with torch.no_grad():
            for parameter in domain.module.parameters():
                parameter.mul_(1.05)
        within = scored()
        domain.sample(domain.prompts([0]), 2, streams=Streams(0), step=0, settings={}, requires=LOG_PROB)
    with autocast_of(recipe, torch.device("cpu")):
        afresh = scored()
    assert torch.equal(within, afresh)
    assert not torch.equal(within, before)


@pytest.mark.slow
def test_a_scheduled_temperature_is_stored_with_what_it_sampled(qwen: Path, tmp_path: Path) -> None:
    course = "domain.sampling_schedule.temperature={kind = 'linear', start = 1.6, end = 0.4, num_steps = 4}"
    run = train(
        experiment(qwen, course, "track.rollouts_every=1", "train.num_steps=3"), out=tmp_path / "run"
    ).folder.path
    told = [row["settings/temperature"] for row in rows(run)[1:]]
    assert told == pytest.approx([1.6, 1.3, 1.0])
    assert [rollouts(run, step)[0]["settings"]["temperature"] for step in (1, 2, 3)] == told


CHATS = [
    {"question": [{"role": "user", "content": f"sum {i} + 2"}], "solution": str(i + 2), "level": i % 3}
    for i in range(9)
]


@pytest.mark.slow
def test_chats_from_a_file(qwen: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CHATS))
    source = {
        "source": {"kind": "files", "paths": [str(path)]},
        "num_train": None,
        "num_held_out": 3,
        "prompt_column": "question",
        "answer_column": "solution",
    }
    correct = {"kind": "exact_answer", "weight": 0.5}
    chosen = experiment(
        qwen,
        "track.rollouts_every=1",
        "domain.chat.system=be brief",
        domain={"data": source, "rewards": {"correct": correct}, "sampling": {"stop": ["+"]}},
    )
    domain = open_domain(chosen)
    assert domain.num_prompts == 6
    prompt = domain.prompts([0])[0]
    ids = domain.sample([prompt], 2, streams=Streams(0), step=0, settings={}, requires=LOG_PROB).payload["prompt_ids"][
        0
    ]
    asked = prompt.columns["prompt"][0]["content"]
    assert domain.tokenizer.decode(ids) == f"<|system|>be brief<|end|><|user|>{asked}<|end|><|assistant|>"
    member = rollouts(train(chosen, out=tmp_path / "run").folder.path, 1)[0]
    assert member["prompt"][0]["role"] == "user"
    assert set(member["rewards"]) == {"digits", "correct"}


PERIODIC = "{kind = 'periodic', sync_steps = 2, alpha = 0.6}", [0, 0.6]
EMA = "{kind = 'ema', decay = 0.7}", [0.3, 0.3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "shares", "adapter"),
    [
        (*PERIODIC, False),
        (*EMA, True),
    ],
)
def test_references_follow_the_policy(
    qwen: Path, tmp_path: Path, reference: str, shares: list[float], adapter: bool
) -> None:
    settings = [
        *KL,
        f"reference={reference}",
        "optimiser.learning_rate=0.01",
        "checkpoint.keep_last=9",
        "train.num_steps=3",
    ]
    run = train(experiment(qwen, *settings, *(LORA[:1] if adapter else [])), out=tmp_path / "run").folder.path
    expected = weights(run, 0)
    for step, share in enumerate(shares, 1):
        policy = weights(run, step)
        expected = {name: torch.lerp(expected[name], policy[name], share) for name in expected}
        found = load_tree(run / "checkpoints" / f"step-{step}")["reference"]["weights"]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-7)
    divergence = [row["kl"] for row in rows(run)[1:]]
    assert divergence[0] == pytest.approx(0, abs=1e-9)
    assert divergence[1] > 0


def test_a_judge_that_hangs_in_evaluation_is_left_out_counted_and_said(
    qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = {"kind": "callable", "path": "tests.integration.small:endless", "role": "judge", "timeout_seconds": 0.05}
    chosen = experiment(qwen, "train.num_steps=1", "track.console=lines", domain={"rewards": {"slow": judge}})
    result = train(chosen, out=tmp_path / "run")
    found = rows(result.folder.path)
    assert [row["eval/rewards/slow/num_timeout"] for row in found] == [8, 8], "four greedy and four sampled completions"
    assert not any("slow" in name and "num_timeout" not in name for row in found for name in row)
    printed = capsys.readouterr().out
    assert printed.count("reward 'slow': timeout for 8 samples, longer than 0.05 s for a batch of 4") == 1
    assert result.summary["metric"] == "greedy/reward"
    assert result.summary["after"] is not None
