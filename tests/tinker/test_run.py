"""Whole runs over HTTP against the stand-in, by the real SDK: what a person with a server does, and what fails."""

from __future__ import annotations

import io
import json
import re
import runpy
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from tests.marks import slow_but

pytest.importorskip("tinker", reason="the extra `tinker` is not installed")

from tests.tinker.http_standin import BASE, StandIn
from tests.tinker.place import Place

from groupwise.cli.export import export
from groupwise.config import ConfigError
from groupwise.experiment.runner import open_domain, resume, run, with_model
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.runs import read_run
from groupwise.streams import Streams
from groupwise_tinker.client import TinkerError
from groupwise_tinker.saved import SavedState

ROOT = Path(__file__).parents[2]


def test_a_run_learns_and_frees_its_adapters(place: Place, state: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(place.experiment("train.num_steps=12"), place.folder / "run")
    scores = [row["eval/sampled/sevens"] for row in read_run(place.folder / "run").rows if "eval/sampled/sevens" in row]
    assert scores[-1] > scores[0] + 0.5
    assert result.summary["after"] > result.summary["before"]
    assert not state.adapters, "every adapter is unloaded, that of the reference too"
    output = " ".join(capsys.readouterr().out.split())
    assert "whose gradient was measured to be: mean_sequence" in output
    assert "measured not to clip gradients" in output
    assert len(state.shapes) <= 4, state.shapes
    saved = SavedState.read(place.folder / "run" / "model")
    assert saved.state in state.states


@pytest.mark.slow
def test_a_run_whose_engine_died_says_so_and_goes_on_from_the_saved_state(place: Place, state: StandIn) -> None:
    whole = run(place.experiment(), place.folder / "whole")
    state.steps_until_failure = state.num_steps + 8 + 3  # the measurement of the rules takes eight
    with pytest.raises(TinkerError, match=r"optim_step failed: .*the engine is gone") as failure:
        run(place.experiment(), place.folder / "failed")
    assert "\n" not in str(failure.value)
    state.steps_until_failure = None
    # What the folder names is all that the server has to keep.
    num_states = len(state.states)
    files = [path.read_text() for path in (place.folder / "failed").rglob("*.json")]
    needed = {name for text in files for name in re.findall(r'tinker://[^"]+', text)}
    state.states = {name: saved for name, saved in state.states.items() if name in needed}
    assert 0 < len(state.states) < num_states
    resumed = resume(place.folder / "failed", run_code=True)
    scores = [
        [row.get("eval/sampled/sevens") for row in read_run(place.folder / name).rows] for name in ("whole", "failed")
    ]
    assert scores[0] == scores[1]
    assert whole.summary["after"] == resumed.summary["after"]
    assert not state.adapters, "the adapters of the run that failed are freed too"


READERS_OF_MORE = ("awm", "diffusion_nft", "flow_dppo", "flow_grpo", "grpo_guard", "source_002", "source_003")
"""Methods that read more than log-probs."""
"""A method of every scope: decision, member, batch."""


@pytest.mark.parametrize("method", slow_but(("source_003",), ("source_003", "flow_grpo", "awm")))
def test_a_method_that_reads_more_than_log_probs_is_refused(place: Place, state: StandIn, method: str) -> None:
    with pytest.raises(ConfigError, match=r"noised copies|reads \[.*supplies \['log_prob'\]|continuous") as refusal:
        run(place.experiment(method=method), place.folder / "run")
    assert "\n" not in str(refusal.value)
    assert not (place.folder / "run").exists()


def test_the_guide_counts_the_methods_that_a_server_can_serve() -> None:
    num_methods = len(method_names())
    objectives = {name: Objective.preset(name) for name in method_names()}
    readers = [
        name
        for name, objective in objectives.items()
        if (objective.requires | objective.requires_rollouts & {"step_size"}) - {"log_prob"}
        or objective.matching.kind != "none"
    ]
    assert sorted(readers) == sorted(READERS_OF_MORE)
    guide = " ".join((ROOT / "docs" / "guide" / "tinker.md").read_text(encoding="utf-8").split())
    assert f"of the {num_methods} shipped methods the {num_methods - len(READERS_OF_MORE)} that" in guide


@pytest.mark.slow
def test_a_saved_model_is_evaluated_and_sampled_through_the_server(place: Place, state: StandIn) -> None:
    experiment = place.experiment("train.num_steps=2")
    result = run(experiment, place.folder / "run")
    before = len(state.calls)
    domain = open_domain(with_model(experiment, place.folder / "run" / "model"))
    metrics = domain.evaluate(streams=Streams(experiment.seed)).metrics
    domain.close()
    assert metrics["greedy/sevens"] == result.summary["after"]
    assert "optim_step" not in state.calls[before:], "a model that is only asked measures nothing"
    assert not state.adapters


@pytest.mark.slow
def test_a_state_that_the_server_lost_is_one_line(place: Place, state: StandIn) -> None:
    experiment = place.experiment("train.num_steps=1")
    run(experiment, place.folder / "run")
    state.states.clear()
    message = r"the state tinker://\S+ cannot be loaded: .*Checkpoint not found"
    with pytest.raises(ConfigError, match=message) as refusal:
        open_domain(with_model(experiment, place.folder / "run" / "model"))
    assert "\n" not in str(refusal.value)


REFUSED = [
    ("domain.sampling.temperature=0.7", r"sampling\.temperature = 0\.7 .* write 1"),
    ("domain.sampling.top_p=0.9", r"sampling\.top_p = 0\.9 .* write 1"),
    ("domain.sampling.top_k=5", r"sampling\.top_k = 5 .* write 0"),
    ('domain.sampling.stop=["="]', r"sampling\.stop = \['='\]"),
    (
        'domain.sampling_schedule.temperature={kind="linear",start=1,end=0.5,num_steps=4}',
        r"sampling_schedule\.temperature = 0\.5",
    ),
    ("domain.engine.kind=transformers", r'engine\.kind = "transformers" .* leave engine out'),
    ("entropy=0.01", r"reads \['entropy'\].*supplies \['log_prob'\]"),
    (
        'credit={gradient_adaptive={signal="score_norm"}}',
        r"reads \['score_norm'\].*supplies \['log_prob'\]",
    ),
    ("divergence.kind=exact", "exact_divergence"),
    ("reference.kind=ema", r"reference\.kind"),
    ("train.l2_to_reference=0.1", r"train\.l2_to_reference"),
    ("train.micro_batch_members=auto", "micro_batch_members"),
    ("domain.model.base_model=other", r"does not serve it; allowed: bigram"),
    ("domain.model.tokenizer=nowhere", "nowhere"),
]


# By the server, by the objective and by the address: one of each at once.
@pytest.mark.parametrize(("override", "message"), slow_but([REFUSED[place] for place in (0, 6, 12)], REFUSED))
def test_what_a_server_cannot_give_is_refused(place: Place, state: StandIn, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        run(place.experiment(override), place.folder / "run")
    assert "\n" not in str(refusal.value)
    assert "forward" not in state.calls or "optim_step" in state.calls
    assert not (place.folder / "run").exists()


@pytest.mark.slow
def test_the_example_trains_with_the_library_alone(place: Place, state: StandIn) -> None:
    path = Path(__file__).parents[2] / "examples" / "train_on_tinker.py"
    assert len(path.read_text().splitlines()) <= 80
    means = runpy.run_path(str(path))["train"](place.address, BASE, str(place.folder / "tokenizer"))
    assert len(means) == 20
    assert max(means) > 0
    assert state.num_steps > 20
    assert not state.adapters


def archive(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        files = {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save_tensors(weights)}
        for name, value in {**files, "../outside.txt": b"outside"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(value)
            tar.addfile(member, io.BytesIO(value))
    return content.getvalue()


@pytest.mark.slow
def test_an_export_is_the_adapter_as_peft_loads_it(place: Place, state: StandIn) -> None:
    run(place.experiment("train.num_steps=1"), place.folder / "run")
    key = "base_model.model.model.layers.0.self_attn.{}.lora_A.weight"
    weights = {key.format(name): torch.ones(2, 3) for name in ("q_proj", "k_proj")}
    state.archive = archive({"r": 2, "target_modules": None, "task_type": None}, weights)
    export(place.folder / "run", place.folder / "adapter")
    config = json.loads((place.folder / "adapter" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["k_proj", "q_proj"]
    assert (config["base_model_name_or_path"], config["task_type"]) == (BASE, "CAUSAL_LM")
    assert load_file(place.folder / "adapter" / "adapter_model.safetensors").keys() == weights.keys()
    card = (place.folder / "adapter" / "README.md").read_text()
    assert "base_model_relation: adapter" in card
    assert (place.folder / "adapter" / "tokenizer.json").is_file()
    assert not (place.folder / "adapter" / "tinker.json").exists()
    assert not (place.folder / "outside.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Checkpoint not found.*As long as the server keeps"),
        (b"no archive", "is no tar archive"),
        (b"", "no tar archive"),
    ],
)
def test_an_export_without_weights_is_one_line(
    place: Place, state: StandIn, content: bytes | None, message: str
) -> None:
    run(place.experiment("train.num_steps=1"), place.folder / "run")
    state.archive = content
    with pytest.raises(ConfigError, match=message) as refusal:
        export(place.folder / "run", place.folder / "adapter")
    assert "\n" not in str(refusal.value)
    assert not (place.folder / "adapter").exists()
