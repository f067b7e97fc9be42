"""Weights in shards over real processes (gloo) give what whole weights on every process give: references, averages,
recomputed activations, measured passes; a checkpoint serves any number of processes, and an absent process is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.causal_lm.engine.stand_in import serving
from tests.training.forked import ROOT, launch_forked
from tests.training.step_runs import Case, table, write_inputs
from transformers import AutoModelForCausalLM

from groupwise.causal_lm.backbone import Backbone
from groupwise.checkpoint import CheckpointConfig, CheckpointStore
from groupwise.checkpoint.tree import SHARDS
from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import open_domain, resume, run
from groupwise.learner.shards import read_whole
from groupwise.runs import read_lines
from groupwise.training.run.evaluation import write_model_of
from groupwise_vllm.proof import NUM_PROMPTS

BOUND = 1e-12
"""Of a weight, all of whose size is about one, on a shape that computes in fp64 throughout."""


VARIANTS: dict[str, tuple[Case, dict[str, Any]]] = {
    "ema_average_pull": (
        Case("grpo", processes=2),
        {
            "reference": {"kind": "ema", "decay": 0.5},
            "train": {"weight_average": {"decay": 0.5}, "l2_to_reference": 0.1},
        },
    ),
    "periodic": (
        Case("grpo", processes=2, minibatches=2),
        {"reference": {"kind": "periodic", "sync_steps": 1, "alpha": 0.5}},
    ),
    "frozen_adapter_copy": (
        Case("grpo", lora=True, processes=2, minibatches=2),
        {"reference": {"kind": "frozen", "adapter": "copy"}},
    ),
    "recomputed": (Case("grpo", processes=2), {"train": {"gradient_checkpointing": True}}),
    "measured": (
        Case("dapo", processes=2),
        {"train": {"micro_batch_members": "auto", "memory_limit_gib": 16.0}},
    ),
    # Passes in which a process joins the others draw no numbers, so that those that count draw the same.
    "dropout": (
        Case("grpo", processes=2, minibatches=2),
        {"model": {"path": "dropping", "dropout": "kept"}},
    ),
    "untied": (Case("kl_cov", processes=2, minibatches=3), {"model": {"path": "untied"}}),
    # Files in half precision, which only shards are converted from.
    "converted": (Case("grpo", processes=2), {"model": {"path": "half"}}),
    "converted_adapter": (
        Case("grpo", lora=True, processes=2, minibatches=2),
        {"model": {"path": "half"}, "reference": {"kind": "frozen", "adapter": "copy"}},
    ),
    # FSDP sums fp32 in another way than fp64.
    "master_weights": (Case("grpo", processes=2), {"model": {"dtype": "float32"}, "train": {"autocast": "bfloat16"}}),
}
HALF_BOUND = 1e-5
"""Of an fp32 weight whose gradients are of bf16 products, equal on each process: the sums round, and AdamW's steps."""


def write(name: str, case: Case, changes: dict[str, Any], folder: Path) -> None:
    """The file of an experiment: that of a case, with some keys changed."""
    experiment = table(case, folder / case.family, folder / "corpus.jsonl")
    experiment["domain"]["model"] |= changes.get("model", {})
    experiment["domain"]["model"]["path"] = str(folder / Path(experiment["domain"]["model"]["path"]).name)
    experiment["domain"] |= changes.get("domain", {})
    for key in ("train", "checkpoint"):
        experiment[key] |= changes.get(key, {})
    if "reference" in changes:
        experiment["reference"] = changes["reference"]
    (folder / f"{name}.json").write_text(json.dumps(experiment), encoding="utf-8")


def launch(tasks: list[str], folder: Path, size: int) -> None:
    """Runs tasks in `size` processes."""
    (folder / "tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
    launch_forked("tests.training.sharding_worker", size, folder)


def newest(run_folder: Path) -> Any:
    checkpoint = CheckpointStore(run_folder / "checkpoints", CheckpointConfig()).latest()
    assert checkpoint is not None
    return read_whole(checkpoint.load())


def gaps(actual: Any, expected: Any, place: str = "") -> dict[str, float]:
    """The largest difference of every tensor in two records of the same form."""
    if isinstance(expected, torch.Tensor):
        return {place: float((actual - expected).abs().max())} if expected.numel() else {}
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        return {
            name: gap
            for key, value in expected.items()
            for name, gap in gaps(actual[key], value, f"{place}/{key}").items()
        }
    if isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        pairs = enumerate(zip(actual, expected, strict=True))
        return {name: gap for index, (a, b) in pairs for name, gap in gaps(a, b, f"{place}/{index}").items()}
    return {}


def write_half(folder: Path) -> None:
    """The GPT-2 folder with its weights in bfloat16."""
    model = AutoModelForCausalLM.from_pretrained(folder / "gpt2", dtype=torch.bfloat16)
    shutil.copytree(folder / "gpt2", folder / "half")
    (folder / "half" / "model.safetensors").unlink()
    model.save_pretrained(folder / "half")


def write_dropping(folder: Path) -> None:
    """The GPT-2 folder with dropout."""
    shutil.copytree(folder / "gpt2", folder / "dropping")
    path = folder / "dropping" / "config.json"
    settings = {**json.loads(path.read_text(encoding="utf-8")), "resid_pdrop": 0.2, "embd_pdrop": 0.1}
    path.write_text(json.dumps(settings), encoding="utf-8")


def write_untied(folder: Path) -> None:
    """The GPT-2 folder with a head of its own, in fp64."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder / "gpt2", tie_word_embeddings=False, dtype=torch.float64)
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    shutil.copytree(folder / "gpt2", folder / "untied")
    (folder / "untied" / "model.safetensors").unlink()
    model.save_pretrained(folder / "untied")


@pytest.mark.nightly
def test_shards_end_where_whole_weights_end(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    write_untied(tmp_path)
    write_half(tmp_path)
    write_dropping(tmp_path)
    tasks = []
    for name, (case, changes) in VARIANTS.items():
        for sharding in ("none", "full"):
            tasks.append(f"{name}-{sharding}")
            write(tasks[-1], case, {**changes, "train": {**changes.get("train", {}), "sharding": sharding}}, tmp_path)
    launch(tasks, tmp_path, 2)
    for name in VARIANTS:
        whole, shards = (newest(tmp_path / f"{name}-{sharding}") for sharding in ("none", "full"))
        parts = ("learner", "reference", "average")
        differences = gaps(*({part: record[part] for part in parts} for record in (shards, whole)))
        # Where a moment is the square of a tiny gradient, its size is far below one, and so is its difference.
        bound = HALF_BOUND if name == "master_weights" else BOUND
        assert {place: gap for place, gap in differences.items() if not gap <= bound} == {}, name
        assert any("/reference/weights" in place for place in differences), name
        rows = [
            json.loads((tmp_path / f"{name}-{sharding}" / "metrics.jsonl").read_text().splitlines()[-1])
            for sharding in ("none", "full")
        ]
        # Distances are summed in fp32.
        for metric, rel in (("grad_norm", 1e-9), ("reference/distance", 1e-5), ("loss_l2", 1e-5)):
            if metric in rows[0] and name != "master_weights":
                assert rows[1][metric] == pytest.approx(rows[0][metric], rel=rel), (name, metric)


@pytest.mark.nightly
def test_a_checkpoint_of_two_serves_one_two_and_four(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    changes = {
        "train": {"sharding": "full", "prompts_per_step": 4, "weight_average": {"decay": 0.5}},
        "checkpoint": {"every": 1, "keep_last": 5},
        "reference": {"kind": "ema", "decay": 0.5},
    }
    write("two", Case("grpo", processes=2), changes, tmp_path)
    launch(["two"], tmp_path, 2)
    expected = newest(tmp_path / "two")
    checkpoint = tmp_path / "two" / "checkpoints" / "step-2"
    written = sorted(path.name for path in (checkpoint / "shards").iterdir())
    assert written == [f"shard-0000{rank}-model-00001-of-00001.safetensors" for rank in (1, 2)]
    # The first process holds no weight beyond its share of them; counters alone are not spread.
    assert (checkpoint / "tensors.safetensors").stat().st_size < (checkpoint / "shards" / written[1]).stat().st_size / 4
    exported_folder = tmp_path / "exported"
    exported_folder.mkdir()
    store = CheckpointStore(tmp_path / "two" / "checkpoints", CheckpointConfig())
    experiment = load_experiment(tmp_path / "two" / "config.json", run_code=True)
    write_model_of(store.complete()[-1], open_domain(experiment), exported_folder)
    exported = load_file(exported_folder / "model.safetensors")
    assert gaps(exported, load_file(tmp_path / "two" / "model" / "model.safetensors")) == dict.fromkeys(
        (f"/{name}" for name in exported), 0.0
    )
    for size in (1, 2, 4):
        name = f"resumed-{size}"
        shutil.copytree(tmp_path / "two", tmp_path / name)
        shutil.rmtree(tmp_path / name / "checkpoints" / "step-2")
        shutil.rmtree(tmp_path / name / "model")
        (tmp_path / name / "summary.json").unlink()
        launch([f"resume {name}"], tmp_path, size)
        resumed = newest(tmp_path / name)
        differences = gaps(
            *({part: record[part] for part in ("learner", "reference", "average")} for record in (resumed, expected))
        )
        assert max(differences.values()) <= (0.0 if size == 2 else BOUND), (size, differences)
        # The exported folder is a plain one, of the averaged weights, whoever wrote it.
        model = load_file(tmp_path / name / "model" / "model.safetensors")
        for weight, value in load_file(tmp_path / "two" / "model" / "model.safetensors").items():
            assert float((model[weight] - value).abs().max()) <= BOUND


@pytest.mark.nightly
def test_servers_sample_for_shards_as_for_whole_weights(tmp_path: Path) -> None:
    """The servers end with the trained weights, since the last evaluation asks them. With shards no whole model scores
    more than a proof, and a run ends where one with whole weights and servers of each process ends.
    """
    write_inputs(tmp_path)
    with (tmp_path / "held_out.jsonl").open("a", encoding="utf-8") as rows:
        rows.write(json.dumps({"prompt": "cd?", "shown": "b"}) + "\n")
    runs = {name: (name.partition("-")[0], int(name[-1])) for name in ("none-2", "none-1", "full-2", "full-1")}
    for name, (sharding, num_servers) in runs.items():
        case = Case("gspo", processes=2, sharding=sharding)  # which reads the entropy too
        with contextlib.ExitStack() as stack:
            folder = tmp_path / case.family
            models = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64) for _ in range(num_servers)]
            servers = [stack.enter_context(serving(Backbone(model.eval()))) for model in models]
            engine = {"kind": "vllm", "address": [server.address for server in servers], "model": "served"}
            # Without top-p every batch is compared with the trained weights.
            sampling = {"max_new_tokens": 6, "max_turn_tokens": 3, "temperature": 0.8}
            changes = {"domain": {"engine": engine, "sampling": sampling}, "train": {"group_size": 8}}
            write(name, case, changes, tmp_path)
            launch([name], tmp_path, 2)
        trained = newest(tmp_path / name)["learner"]["weights"]
        for server, model in zip(servers, models, strict=True):
            assert server.syncs == ["v0", "v1", "v2"]
            weights = model.state_dict()
            assert {
                name: gap for name, gap in gaps(trained, {name: weights[name] for name in trained}).items() if gap
            } == {}
        if num_servers == 2:
            asked = [{json.dumps(body["prompt"]) for body in server.requests[8:]} for server in servers]
            assert asked[0] != asked[1], "a process asks its own server about its own share"
    expected, *others = (newest(tmp_path / name)["learner"]["weights"] for name in runs)
    assert max(gap for weights in others for gap in gaps(weights, expected).values()) <= BOUND
    for name in ("full-2", "full-1"):
        sizes = [json.loads((tmp_path / f"scored-whole-{rank}-{name}.json").read_text()) for rank in range(2)]
        assert sizes[0]
        # Servers that both processes share are sent the weights by the first one, which alone gathers them.
        assert bool(sizes[1]) == (name == "full-2")
        assert max(size for process in sizes for size in process) <= NUM_PROMPTS
    first, *tables = (read_lines(tmp_path / name / "metrics.jsonl").rows for name in runs)
    names = ("reward", "sampling/sampling_logp_difference/mean", "entropy", "eval/sampled/reward")
    assert {name for row in first for name in row} >= set(names)
    for table_of_run in tables:
        for row, row_of_first in zip(table_of_run, first, strict=True):
            compared = {name: row_of_first[name] for name in names if name in row_of_first}
            assert {name: row[name] for name in compared} == pytest.approx(compared, rel=1e-9, abs=1e-9)


@pytest.mark.nightly
def test_shards_train_beside_a_server_that_nobody_sends_weights(tmp_path: Path) -> None:
    """The whole weights rescore, and the server's own distribution is the behaviour policy's."""
    write_inputs(tmp_path)
    case = Case("grpo", processes=2, sharding="full")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / case.family, dtype=torch.float64)
    with serving(Backbone(model.eval())) as server:
        engine = {"kind": "vllm", "address": server.address, "model": "served", "sync": "none"}
        write("behind", case, {"domain": {"engine": engine}}, tmp_path)
        launch(["behind"], tmp_path, 2)
    assert server.syncs == []
    gap = "sampling/sampling_logp_difference/mean"
    gaps_by_step = [row[gap] for row in read_lines(tmp_path / "behind" / "metrics.jsonl").rows if gap in row]
    assert len(gaps_by_step) == 2
    assert 0 < gaps_by_step[0] < gaps_by_step[1]


@pytest.mark.nightly
def test_a_process_that_does_not_come_is_an_error(tmp_path: Path) -> None:
    launch(["absent"], tmp_path, 2)
    assert (tmp_path / "absent.txt").is_file(), "the pass ended without the process, or never"


def test_one_process_has_all_weights(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    write("one", Case("grpo"), {"train": {"sharding": "full"}}, tmp_path)
    with pytest.raises(ConfigError, match=r'train.sharding = "full": this is one process.*torchrun'):
        run(load_experiment(tmp_path / "one.json", run_code=True), tmp_path / "one")
    assert not (tmp_path / "one").exists()


@pytest.mark.nightly
def test_a_process_that_a_launcher_started_alone_has_one_shard(tmp_path: Path) -> None:
    """A script that starts as many processes as there are GPUs runs on one GPU."""
    write_inputs(tmp_path)
    write("whole", Case("grpo"), {}, tmp_path)
    write("alone", Case("grpo"), {"train": {"sharding": "full"}}, tmp_path)
    run(load_experiment(tmp_path / "whole.json", run_code=True), tmp_path / "whole")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "-m", "groupwise"]
    command = ["train", str(tmp_path / "alone.json"), "--run-code", "--out", str(tmp_path / "alone")]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run([*launcher, *command], capture_output=True, text=True, env=paths, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "alone" / "checkpoints").glob(f"*/{SHARDS}")), "the checkpoint is not one of shards"
    whole, alone = (newest(tmp_path / name)["learner"]["weights"] for name in ("whole", "alone"))
    assert max(gaps(alone, whole).values()) <= BOUND
    # A plain process goes on with what the launcher's began, from its checkpoint of shards.
    for done in ("model", "checkpoints/step-2"):
        shutil.rmtree(tmp_path / "alone" / done)
    (tmp_path / "alone" / "summary.json").unlink()
    resume(tmp_path / "alone", run_code=True)
    assert max(gaps(newest(tmp_path / "alone")["learner"]["weights"], whole).values()) <= BOUND
