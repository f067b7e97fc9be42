"""CPU seconds of a program under the unit-test reward, of this version beside another: what the wall costs.

    python benchmarks/unit_tests.py --beside OTHER/src

Each side runs in processes of its own, alternating; every process runs batches of programs, and the time of a batch is
its own and that of all that it started. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent / "src"
_CODE = "def add(a, b): return a + b\nprint(3)"
_TESTS = {
    "a test apart (two processes)": "assert add(1, 2) == 3",
    "input and output (one process)": {"input": "", "output": "3"},
}
_TICKS = os.sysconf("SC_CLK_TCK")


def _seconds() -> float:
    """Processor time of this process, of those it has waited for, and of those that still run for it, with theirs."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    fields = [
        Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15] for process in ("self", *children)
    ]
    return sum(int(ticks) for four in fields for ticks in four) / _TICKS


def _measure(programs: int, batches: int) -> dict[str, list[float]]:
    """Milliseconds a program, one number a batch."""
    import asyncio

    from groupwise.reward import UnitTests

    reward = UnitTests(num_parallel=1, wall_seconds=60.0).open()
    taken: dict[str, list[float]] = {}
    for name, test in _TESTS.items():
        for _ in range(batches):
            before = _seconds()
            values = asyncio.run(reward([""] * programs, [_CODE] * programs, tests=[[test]] * programs))
            # The last of a batch is waited for a moment after its answer.
            time.sleep(0.2)
            assert values == [1.0] * programs
            taken.setdefault(name, []).append(1000 * (_seconds() - before) / programs)
    return taken


def main() -> None:
    """Measures both sides and prints a line a kind of test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="the src folder of the other version")
    parser.add_argument("--programs", type=int, default=20, help="in a batch")
    parser.add_argument("--batches", type=int, default=3, help="a process and kind of test")
    parser.add_argument("--repeats", type=int, default=4, help="processes a side")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(_measure(given.programs, given.batches)))
        return
    sides = {"this": _HERE, **({"other": given.beside.resolve()} if given.beside else {})}
    taken: dict[str, dict[str, list[float]]] = {side: {name: [] for name in _TESTS} for side in sides}
    for _ in range(given.repeats):
        for side, source in sides.items():
            command = [
                sys.executable,
                __file__,
                "--measure",
                f"--programs={given.programs}",
                f"--batches={given.batches}",
            ]
            done = subprocess.run(
                command, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True
            )
            for name, values in json.loads(done.stdout).items():
                taken[side][name] += values
    for name in _TESTS:
        for side in sides:
            values = taken[side][name]
            print(
                f"{name:32} {side:6} {statistics.median(values):6.1f} ms of CPU a program ({min(values):.1f} to"
                f" {max(values):.1f}, {len(values)} batches)"
            )


if __name__ == "__main__":
    main()
