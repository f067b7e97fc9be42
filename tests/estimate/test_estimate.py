"""The estimate of a step: its parts, and the remarks on numbers that no measurement supports."""

from __future__ import annotations

from groupwise.estimate.estimate import estimate
from groupwise.estimate.machine import CalibratedRates, Step, documented_machine
from groupwise.estimate.shape import Shape

SMALL = Shape(hidden=64, intermediate=192, vocabulary=32, layers=3, heads=4, kv_heads=2, head_width=16)
LARGE = Shape(
    hidden=4096, intermediate=14336, vocabulary=128256, layers=32, heads=32, kv_heads=8, head_width=128, tied=False
)
STEP = Step(prompts=16, group_size=8, prompt_tokens=20, completion_tokens=10, longest=10)
PART = {
    "call": 1e-3,
    "layer": 1e-3,
    "token": 0.0,
    "parameter": 0.0,
    "logit": 0.0,
    "layer_rates": {"64": 1e10, "448": 4e10},
    "head_rates": {"64": 1e10, "448": 4e10},
}
HERE = CalibratedRates(
    "a processor", {"sampling": PART, "scoring": PART, "update": PART}, widest=448, tokens=33
).machine()


def test_numbers_beyond_the_measured_ones_are_called_extrapolated():
    assert estimate(SMALL, STEP, HERE).extrapolated == []
    assert "communication" not in estimate(SMALL, STEP, HERE).seconds
    remarks = estimate(LARGE, Step(16, 8, 2000, 500, 500), HERE, num_processes=2, sharding="full").extrapolated
    assert [line.split(":")[0] for line in remarks] == [
        "hidden width 4096",
        "2500 tokens a member",
        "2 devices",
        "sharded weights",
    ]
    assert (
        estimate(SMALL, STEP, documented_machine("H200", half=True))
        .extrapolated[0]
        .startswith("H200: documented peaks")
    )


def test_more_devices_take_less_time_and_talk():
    alone, eight = (
        estimate(
            LARGE,
            Step(64, 8, 200, 300, 300, micro_batch=4),
            documented_machine("H100", half=True),
            num_processes=number,
        )
        for number in (1, 8)
    )
    assert eight.seconds["update"] < alone.seconds["update"] / 4
    assert eight.seconds["communication"] > 0
    shards = estimate(
        LARGE,
        Step(64, 8, 200, 300, 300, micro_batch=4),
        documented_machine("H100", half=True),
        num_processes=8,
        sharding="full",
    )
    assert shards.seconds["communication"] > eight.seconds["communication"]
    assert shards.bytes["peak"] < eight.bytes["peak"] / 2
