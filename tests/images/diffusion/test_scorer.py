"""Transformers and UNets of diffusers whose weights are sharded over two processes end where one process ends: whole
and with an adapter, with log-probs and with noised copies, with references of every kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_runs import diffusion as golden
from tests.images.diffusion.models.tiny import saved
from tests.images.diffusion.small import domain, gradient, measured_domain, nudge, sampled
from tests.training.test_sharding import gaps, launch, newest

from groupwise.config import ConfigError, merge
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.track import read_metrics
from groupwise_images.diffusion.scorer import Scorer
from groupwise_images.image_evaluation import JudgedImages, judged_in_chunks

BOUND = 1e-12
"""Of weights of size one in fp64: the sums over some ten members round in another order (1e-16 of a gradient of at
most 300), and two updates with a large eps hardly magnify that.
"""

UNET = {
    "name": "UNet2DModel",
    "shape": {
        "sample_size": 8,
        "in_channels": 1,
        "out_channels": 1,
        "block_out_channels": [4, 8],
        "norm_num_groups": 2,
        "layers_per_block": 1,
        "attention_head_dim": 4,
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        "num_class_embeds": 10,
    },
    "scheduler": {"name": "DDIMScheduler"},
}
SLICES: dict[str, Any] = {"transitions_at_once": 5}
WHOLE: dict[str, Any] = {"updates_per_batch": 2, "micro_batch_members": None}
"""All members at once: 24 transitions on one process and 12 on the other, in five passes and in three."""
VARIANTS: dict[str, dict[str, Any]] = {
    # Three prompts for two processes, so that shares and numbers of passes differ.
    "dit": {
        "method": "flow_grpo",
        "auxiliary": {"supervised": 0.3},
        "reference": {"kind": "ema", "decay": 0.5},
        "domain": {"model": {"shape": {"num_layers": 2}}, "demonstrations": {}, "guidance": 2.0},
        "train": {"weight_average": {"decay": 0.5}, "l2_to_reference": 0.1, "demonstrations_per_step": 3},
    },
    "unet": {
        "method": "grpo",
        "divergence": {"kind": "k3", "beta": 0.1},
        "reference": {"kind": "periodic", "sync_steps": 1, "alpha": 0.5},
        "domain": {"model": UNET, "sampler": {"kind": "ddim", "eta": 1.0}},
        "train": {"gradient_checkpointing": True, "micro_batch_members": "auto", "memory_limit_gib": 16.0},
    },
    "StableDiffusionPipeline": {
        "method": "grpo",
        "divergence": {"kind": "k3", "beta": 0.1},
        "domain": {"model": {"lora": {"rank": 2}}, "sampler": {"kind": "ddim", "eta": 1.0}, "guidance": 2.0},
    },
    "StableDiffusion3Pipeline": {"method": "diffusion_nft", "reference": {"kind": "frozen"}},
    "FluxPipeline": {"method": "awm"},
    # Passes of five transitions: by cotangents and by the loss, of the reference, of demonstrations.
    "dit_slices": {
        "method": "flow_grpo",
        "auxiliary": {"supervised": 0.3},
        "reference": {"kind": "ema", "decay": 0.5},
        "domain": {"model": {"shape": {"num_layers": 2}}, "demonstrations": {}, **SLICES},
        "train": {"demonstrations_per_step": 17, **WHOLE},
    },
    "unet_slices": {
        "method": "grpo",
        "divergence": {"kind": "k3", "beta": 0.1},
        "reference": {"kind": "frozen"},
        # One prompt is evaluated, so that one of two processes has nothing to draw.
        "domain": {
            "model": UNET,
            "sampler": {"kind": "ddim", "eta": 1.0},
            "guidance": 2.0,
            "evaluation": {"num_prompts": 1},
            **SLICES,
        },
        "train": {"gradient_checkpointing": True, "updates_per_batch": 2, "micro_batch_members": 3},
    },
    # Of three groups one minibatch has two and one has one, so that a process without members joins passes of others.
    "nft_slices": {
        "method": "diffusion_nft",
        "reference": {"kind": "frozen"},
        "domain": SLICES,
        "train": {**WHOLE, "minibatches": 2},
    },
}


def experiment(name: str, folder: Path, sharding: str) -> dict[str, Any]:
    """The file of a run of two updates in which everything is fp64."""
    table = golden.table(folder)
    train = {"num_steps": 2, "prompts_per_step": 3, "group_size": 4, "micro_batch_members": 3, "sharding": sharding}
    table = merge(
        table,
        {
            "train": train,
            "checkpoint": {"every": 1, "keep_best": False},
            "track": {"console": "none"},
            "seed": 3,
        },
    )
    if name.endswith("Pipeline"):
        (folder / "prompts.txt").write_text("a red cat\ntwo dogs\na tree\n")
        table["domain"] |= {
            "model": {"kind": "pretrained", "path": str(folder / name), "dtype": "float64", "size": [16, 16]},
            "data": {"source": {"kind": "prompts", "path": str(folder / "prompts.txt")}},
        }
    changes = dict(VARIANTS[name])
    if name.startswith("unet"):
        table["domain"]["model"] = {"kind": "scratch", "dtype": "float64"}
    return merge(table, changes)


@pytest.mark.nightly
@pytest.mark.parametrize("names", [list(VARIANTS)[:4], list(VARIANTS)[4:]], ids=["first", "others"])
def test_two_processes_with_shards_end_where_one_process_ends(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        if name.endswith("Pipeline"):
            saved(name, tmp_path / name)
        for sharding in ("none", "full"):
            (tmp_path / f"{name}-{sharding}.json").write_text(json.dumps(experiment(name, tmp_path, sharding)))
    launch([f"{name}-full" for name in names], tmp_path, 2)
    for name in names:
        run(load_experiment(tmp_path / f"{name}-none.json", run_code=True), tmp_path / f"{name}-none")
        one, shards = (newest(tmp_path / f"{name}-{sharding}") for sharding in ("none", "full"))
        parts = ("learner", "reference", "average")
        differences = gaps(*({part: record[part] for part in parts} for record in (shards, one)))
        assert {place: gap for place, gap in differences.items() if not gap <= BOUND} == {}, name
        rows = [list(read_metrics(tmp_path / f"{name}-{sharding}" / "metrics.jsonl")) for sharding in ("none", "full")]
        for metric in ("grad_norm", "eval/ode/bright"):
            assert rows[1][-1][metric] == pytest.approx(rows[0][-1][metric], rel=1e-9), name
        assert rows[0][-1]["updates/taken"] > 0, name
        measured = newest(tmp_path / f"{name}-full")["progress"]["pass_sizes"]
        assert "update" in measured or name.endswith("slices"), name
        assert measured.get("update", 0) < 2**30, name
        assert all((tmp_path / f"{name}-{sharding}" / "model").is_dir() for sharding in ("none", "full"))
        # For the model that is saved, and for nothing that is drawn.
        assert [(tmp_path / f"gathered-{rank}-{name}-full").read_text() for rank in (0, 1)] == ["1", "1"], name


class Peer:
    """The first of two processes, whose peer has a share of its own size."""

    def __init__(self, share: range, peers_share: range) -> None:
        self._share, self._peers_share = share, peers_share

    def share(self, count: int) -> range:
        return self._share

    def gather(self, value: Any) -> list[Any]:
        return [value, -(-len(self._peers_share) // 2)] if isinstance(value, int) else [value or EMPTY]


EMPTY = JudgedImages({}, RewardTable({}, {}))


@pytest.mark.parametrize(
    ("share", "peers_share"), [(range(5), range(5, 7)), (range(2), range(2, 7)), (range(0), range(3))]
)
@pytest.mark.parametrize("together", [True, False])
def test_processes_draw_equally_often_where_they_draw_together(
    share: range, peers_share: range, together: bool
) -> None:
    drawn: list[int] = []

    def judge(placed: Any) -> JudgedImages:
        drawn.append(len(placed))
        return JudgedImages({}, RewardTable({}, {}), {"places": [place for place, _ in placed]})

    accompany = (lambda: drawn.append(1)) if together else None
    judged = judged_in_chunks(range(7), 2, judge, Peer(share, peers_share), accompany)
    chunks = [len(share[start : start + 2]) for start in range(0, len(share), 2)]
    most = max(len(chunks), -(-len(peers_share) // 2)) if together else len(chunks)
    assert drawn == chunks + [1] * (most - len(chunks))
    assert judged.measured.get("places", []) == list(share)


class ProcessWithFewerPasses:
    """A process of a sharded run, of which another one makes five passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Scorer, "_most", lambda scorer, parts: 5)
        self.diffusion = domain({"transitions_at_once": 3})
        self.diffusion._scorer._mesh = "a mesh"  # type: ignore[assignment]
        with torch.no_grad():
            self.samples = sampled(self.diffusion, 1, 2, LOG_PROB)
        self.passes: list[int] = []
        self.diffusion.module.register_forward_pre_hook(lambda module, given: self.passes.append(len(given[0])))


LOG_PROB = frozenset({"log_prob"})
ROWS = torch.arange(2)


def test_a_process_with_fewer_passes_repeats_its_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six transitions are two passes of three, and three repetitions that change nothing."""
    whole = domain()
    samples = sampled(whole, 1, 2, LOG_PROB)
    nudge(whole)
    weights = torch.linspace(1, 2, 6, dtype=torch.float64).view(2, 3)
    expected = whole.score(samples, ROWS, LOG_PROB).log_prob
    (expected * weights).sum().backward()
    process = ProcessWithFewerPasses(monkeypatch)
    nudge(process.diffusion)
    process.passes.clear()
    with torch.no_grad():
        scored = process.diffusion.score(process.samples, ROWS, LOG_PROB).log_prob
    torch.testing.assert_close(scored, expected.detach(), rtol=0, atol=1e-11)
    assert sorted(process.passes) == [1, 1, 1, 3, 3]
    process.passes.clear()
    live = process.diffusion.score(process.samples, ROWS, LOG_PROB).log_prob
    (live * weights).sum().backward()
    assert sorted(process.passes) == [1] * 6 + [3] * 4, "each is computed again in its backward pass"
    torch.testing.assert_close(live.detach(), expected.detach(), rtol=0, atol=1e-11)
    torch.testing.assert_close(gradient(process.diffusion), gradient(whole), rtol=1e-9, atol=1e-9)
    process.diffusion.module.zero_grad()
    process.passes.clear()
    process.diffusion.backward(process.samples, ROWS, Scored(weights))
    assert sorted(process.passes) == [1, 1, 1, 3, 3]
    torch.testing.assert_close(gradient(process.diffusion), gradient(whole), rtol=1e-9, atol=1e-9)


def test_a_process_without_memory_for_measured_passes_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for it inside the pass."""

    def fails(module: Any, given: Any) -> None:
        if len(given[0]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Scorer, "smallest", lambda scorer, number: number)
    diffusion = measured_domain()
    diffusion._scorer._mesh = "a mesh"  # type: ignore[assignment]
    diffusion.module.register_forward_pre_hook(fails)
    with pytest.raises(ConfigError, match=r"passes were measured; write domain\.transitions_at_once = 1"):
        diffusion.fit_passes()


def test_demonstrations_are_cut_into_as_many_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessWithFewerPasses(monkeypatch)
    shown = process.diffusion.demonstrations(4, streams=Streams(0), step=0)
    assert shown is not None
    losses = []
    for with_gradient in (False, True):
        process.passes.clear()
        with torch.set_grad_enabled(with_gradient):
            losses.append(process.diffusion.score(shown, torch.arange(4), LOG_PROB).auxiliary["supervised"])
        assert sorted(process.passes) == [1, 1, 1, 1, 3]
    torch.testing.assert_close(losses[1].detach(), losses[0], rtol=0, atol=1e-12)
