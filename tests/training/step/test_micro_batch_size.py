"""As many members in a pass as memory holds: measured, halved when it runs out, and never seen in the result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe, weights

from groupwise.config import ConfigError
from groupwise.streams import seed_everything
from groupwise.track import TrackConfig, read_metrics
from groupwise.training.config import TrainConfig
from groupwise.training.run.launch import train
from groupwise.training.step import passes

AUTO = {"micro_batch_members": "auto", "memory_limit_gib": 1000.0}


class Narrow(ToyDomain):
    """A domain on a device that holds only so many members at once."""

    def __init__(self, room: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.room, self.sizes = room, []

    def score(self, samples: Any, rows: torch.Tensor, requires: frozenset[str]) -> Any:
        self.sizes.append(len(rows))
        if len(rows) > self.room and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB")
        return super().score(samples, rows, requires)


def toy(**settings: Any) -> ToyDomain:
    seed_everything(0)
    return ToyDomain(**settings)


def trained(path: Path, domain: ToyDomain, *stages: Any, **track: Any) -> torch.Tensor:
    train(job(*stages, domain=lambda device: domain, track=TrackConfig(console="lines")), path)
    return weights(domain.module)


def grpo(**train: Any) -> Any:
    return recipe(method="grpo", num_steps=3, updates_per_batch=2, **train)


def test_a_generous_limit_takes_all_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = trained(tmp_path / "usual", toy(dropout=0.3), grpo())
    automatic = trained(tmp_path / "auto", toy(dropout=0.3), grpo(**AUTO))
    assert torch.equal(automatic, usual), "the measuring draws no random number that anything else sees"
    assert capsys.readouterr().out.count("micro-batches of 16 members: one pass takes") == 1
    assert [row.get("micro_batch_members") for row in read_metrics(tmp_path / "auto" / "metrics.jsonl")] == [
        None,
        16,
        16,
        16,
    ]


@pytest.mark.parametrize("at_hand", [0, 14000])
def test_the_size_is_what_fits_in_nine_tenths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_hand: int) -> None:
    measurements: list[tuple[float, float, float]] = []
    original = passes._measure

    def noted(*arguments: Any) -> tuple[float, float, float]:
        measurements.append(original(*arguments))
        return measurements[-1]

    monkeypatch.setattr(
        passes,
        "available_bytes",
        lambda device, limit: at_hand + 2 * sum(p.nbytes for p in domain.module.parameters()),
    )
    monkeypatch.setattr(passes, "_measure", noted)
    domain = Narrow(99)
    trained(tmp_path / "run", domain, grpo(**AUTO))
    ((one, per_member, available),) = measurements
    assert available == at_hand, "AdamW's two moments are still to come"
    assert per_member > 0
    size = next(
        iter(row["micro_batch_members"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["step"] == 1)
    )
    assert size == max([n for n in range(1, 17) if one + (n - 1) * per_member <= 0.9 * at_hand], default=1)
    assert max(domain.sizes[3:]) == size, "one, one and a few were measured; the rest is cut as found"


def test_running_out_halves_and_repeats_the_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = trained(tmp_path / "usual", toy(), grpo())
    seed_everything(0)
    # Room for the four of the measuring, and not for what the limit promised.
    automatic = trained(tmp_path / "auto", Narrow(5), grpo(**AUTO))
    torch.testing.assert_close(automatic, usual, rtol=0, atol=1e-12)
    output = capsys.readouterr().out
    assert "memory ran out with 16 members in a pass; the update is made again with 8" in output
    assert "memory ran out with 8 members in a pass; the update is made again with 4" in output
    assert [row["micro_batch_members"] for row in read_metrics(tmp_path / "auto" / "metrics.jsonl") if row["step"]] == [
        4,
        4,
        4,
    ]


def test_running_out_while_measuring_is_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = trained(tmp_path / "usual", toy(), grpo())
    seed_everything(0)
    automatic = trained(tmp_path / "auto", Narrow(2), grpo(**AUTO))
    torch.testing.assert_close(automatic, usual, rtol=0, atol=1e-12)
    assert "micro-batches of" in capsys.readouterr().out
    assert [row["micro_batch_members"] for row in read_metrics(tmp_path / "auto" / "metrics.jsonl") if row["step"]] == [
        2,
        2,
        2,
    ]
    with pytest.raises(
        ConfigError, match=r"memory ran out with 1 members in a pass; write train.gradient_checkpointing"
    ):
        trained(tmp_path / "none", Narrow(0), grpo(**AUTO))


def test_a_fixed_number_that_does_not_fit_is_told_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r'memory ran out with 8 members in a pass; write train.micro_batch_members = "auto" or a smaller number',
    ):
        trained(tmp_path / "fixed", Narrow(5), grpo(micro_batch_members=8))
    with pytest.raises(ConfigError, match="memory ran out with all members in a pass"):
        trained(tmp_path / "all", Narrow(5), grpo())


def test_running_out_while_sampling_is_told(tmp_path: Path) -> None:
    class Full(ToyDomain):
        def sample(self, *arguments: Any, **settings: Any) -> Any:
            torch.empty(2**55)

    with pytest.raises(
        ConfigError, match=r"memory ran out while 4 groups of 4 were sampled; write .*train.prompts_per_step"
    ):
        trained(tmp_path / "run", Full(), grpo())


def test_longer_members_are_measured_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Growing(ToyDomain):
        def sample(self, *arguments: Any, step: int, **settings: Any) -> Any:
            samples = super().sample(*arguments, step=step, **settings)
            if step > 0:
                return samples
            return replace(samples, mask=samples.mask & (torch.arange(self.num_decisions) < 1))

    trained(tmp_path / "run", Growing(num_prompts=4), grpo(**AUTO))
    output = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if "micro-batches of" in line]
    assert output == ["step 1", "step 2"]


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write train.memory_limit_gib = 4"):
        trained(tmp_path / "run", ToyDomain(), grpo(micro_batch_members="auto", device="cpu"))
    with pytest.raises(ValueError, match="write both or neither"):
        TrainConfig(memory_limit_gib=2.0)
