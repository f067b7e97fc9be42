"""What every test runs under: one thread, no network, a cache of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before torch and transformers are imported: both read these once.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A suite that a shell started in the background ignores Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.default_int_handler)
_home = tempfile.TemporaryDirectory(prefix="groupwise-tests-")
for _variable in ("HF_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "GROUPWISE_CACHE", "MPLCONFIGDIR"):
    os.environ[_variable] = _home.name

import random  # noqa: E402

# beartype picks the entry of a list that it checks by Python's global generator, whose state runs save and compare: it
# gets one of its own.
_getrandbits, random.getrandbits = random.getrandbits, random.Random(0).getrandbits
import beartype  # noqa: E402
import beartype._check.code.codemain  # noqa: E402, F401

random.getrandbits = _getrandbits

from jaxtyping import install_import_hook  # noqa: E402

# Every type and shape that these state is checked at every call. What meets mistakes from outside, with errors of its
# own, is not among them.
_checked = [
    "admission",
    "advantage",
    "aggregate",
    "correction",
    "credit",
    "divergence",
    "matching",
    "ratio",
    "smoothing",
]
_checked += [
    "trust",
    "batch",
    "clipping",
    "decisions",
    "grouped",
    "prepare",
]
install_import_hook([f"groupwise.objective.{name}" for name in _checked], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)

import hypothesis  # noqa: E402
import pytest  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Only the tests that are for a GPU see one: all others are of what every machine computes."""
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


# Files of slow tests alone whose imports, of TRL, DSPy and LangChain, take seconds in every worker.
SLOW_TO_IMPORT = ["integrations/trl", "integrations/test_tables.py", "domain/language/test_parsed_turn.py"]
SLOW_TO_IMPORT += ["selection/test_dspy.py", "selection/test_langchain.py", "docs/test_from_trl.py"]
SLOW_TO_IMPORT += ["docs/test_ordering.py", "docs/test_peers.py"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, those files are not imported."""
    here = Path(__file__).parent
    return (
        True if "not slow" in config.option.markexpr and collection_path in map(here.joinpath, SLOW_TO_IMPORT) else None
    )


# Run by path where verl is installed, and nowhere else.
collect_ignore = ["oracles/record_verl.py", "oracles/record_skyrl.py", "engines/serve_tinker.py"]

# The same examples every time, and no clock: a busy machine is not a defect.
hypothesis.settings.register_profile("house", derandomize=True, deadline=None)
hypothesis.settings.load_profile("house")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB, where the machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    gc.collect()  # Weights that were read from a file keep it open.
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module")
def quick_collection() -> Iterator[None]:
    """Spares the collector what other tests and libraries have made: where memory runs out it is called at every pass,
    and in a process that has imported everything each call takes half a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
