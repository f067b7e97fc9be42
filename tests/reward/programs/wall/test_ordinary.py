"""Programs that mean well find behind the wall what they need."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from groupwise.reward import UnitTests
from groupwise.reward.base import Noted
from groupwise.reward.programs.sandbox import Finished, Limits, python, run_limited
from groupwise.reward.wall import machine_wall

ORDINARY = {
    "numpy": "import numpy as np\nprint(int((np.arange(10) @ np.arange(10))))",
    "a file of its own": "open('a.txt', 'w').write('285')\nprint(open('a.txt').read())",
    "temporary files": (
        "import tempfile, os\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f:"
        " f.write(b'285'); f.flush(); print(open(f.name).read())"
    ),
    "folders": (
        "import pathlib,"
        " shutil\npathlib.Path('a/b').mkdir(parents=True)\npathlib.Path('a/b/c').write_text('285')\nshutil.copytree('a',"  # noqa: E501
        " 'd')\nshutil.rmtree('a')\nprint(pathlib.Path('d/b/c').read_text())"
    ),
    "its input": "print(sum(number * number for number in map(int, input().split())))",
    "threads": (
        "import concurrent.futures as c\nwith c.ThreadPoolExecutor(4) as pool: print(sum(pool.map(lambda x: x * x,"
        " range(10))))"
    ),
    "a process": (
        "import multiprocessing as m\ndef square(x, end): end.send(x * x)\nif __name__ == '__main__':\n    total = 0\n "
        "   for x in range(10):\n        ours, theirs = m.Pipe(); p = m.Process(target=square, args=(x, theirs));"
        " p.start(); total += ours.recv(); p.join()\n    print(total)"
    ),
    "another Python": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(285)'], capture_output=True,"
        " text=True, check=True).stdout)"
    ),
    "a shell": "import subprocess\nprint(subprocess.check_output('echo 28 | sed s/$/5/', shell=True, text=True))",
    "asyncio": (
        "import asyncio\nasync def total(): return sum([x * x async for x in numbers()])\nasync def numbers():\n"
        "    for x in range(10):\n        await asyncio.sleep(0); yield x\nprint(asyncio.run(total()))"
    ),
    "its user and the time": (
        "import getpass, os, time, socket, platform\n"
        "getpass.getuser(), os.cpu_count(), time.localtime(), socket.gethostname(), platform.platform()\nprint(285)"
    ),
    "sqlite": (
        "import sqlite3\nc = sqlite3.connect('x.db'); c.execute('create table t (x)'); "
        "c.executemany('insert into t values (?)', [(x * x,) for x in range(10)])\n"
        "c.commit(); print(c.execute('select sum(x) from t').fetchone()[0])"
    ),
}
POOL = (
    "import multiprocessing as m\ndef square(x): return x * x\nif __name__ == '__main__':\n    with m.Pool(2) as pool:"
    " print(sum(pool.map(square, range(10))))"
)


@pytest.mark.slow
def test_ordinary_programs_run(mechanism: str) -> None:
    programs = dict(ORDINARY) | ({"a pool": POOL} if "bubblewrap" in mechanism else {})
    tests = [[{"input": "0 1 2 3 4 5 6 7 8 9\n", "output": "285"}]] * len(programs)
    values = asyncio.run(
        UnitTests(wall_seconds=60.0).open()([""] * len(programs), list(programs.values()), tests=tests)
    )
    assert {
        name: value.value if isinstance(value, Noted) else value for name, value in zip(programs, values, strict=True)
    } == dict.fromkeys(programs, 1.0)


@pytest.mark.parametrize("mechanism", ["bubblewrap", "landlock"], indirect=True)
def test_a_test_imports_the_solution_and_reads_what_it_may(mechanism: str, tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("7")
    tests = ["import solution\nassert solution.twice(2) == 4", f"assert twice(int(open({str(data)!r}).read())) == 14"]
    programs = ["def twice(x): return 2 * x"]
    reward = UnitTests(wall_seconds=60.0)
    assert asyncio.run(reward([""], programs, tests=[tests])) == [0.5]
    assert asyncio.run(reward.model_copy(update={"readable": (str(tmp_path),)})([""], programs, tests=[tests])) == [1.0]


def test_a_command_behind_the_wall_speaks_by_its_own_pipes_and_ends_with_its_program(mechanism: str) -> None:
    program = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)\nsys.exit(7)"
    with (
        machine_wall.wrap([*python(), "-c", program], Limits(cpu_seconds=None)) as (command, passed),
        subprocess.Popen(command, pass_fds=passed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("a", "b"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline() == text * 2 + "\n"
        process.stdin.close()
        assert process.wait(120) == 7
    with (
        machine_wall.wrap(["sh", "-c", "echo begun; sleep 600"], Limits()) as (command, passed),
        subprocess.Popen(command, pass_fds=passed, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.terminate()
        assert process.wait(120) != 0


@pytest.mark.slow
def test_limits_on_the_sum_are_named(mechanism: str) -> None:
    works = "import os\nos.fork(); os.fork()\nwhile True: pass"
    holds = (
        "import os, time\nos.fork(); os.fork()\nheld = bytearray(100 * 2**20)\nfor at in range(0, len(held), 4096):"
        " held[at] = 1\ntime.sleep(60)"
    )
    fills = "import time\nfor n in range(9): open(f'f{n}', 'wb').write(b'x' * 2**20)\ntime.sleep(60)"

    def run(program: str, **limits: object) -> Finished:
        return asyncio.run(run_limited([*python(), "-c", program], Limits(**{"wall_seconds": 120.0, **limits})))  # pyright: ignore

    assert run(works, cpu_seconds=1.0).limit == "cpu"
    assert run(holds, memory_mb=256).limit == "memory"
    # In a file system of its own there is no more room; elsewhere what is written is counted.
    filled = run(fills, disk_mb=4)
    assert filled.limit == "disk" if "landlock" in mechanism else "No space left" in filled.errors
