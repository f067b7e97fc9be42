"""One run of the doctor's bench: trained in a process of its own that has every library loaded already, then judged."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from doctor_bench_faults import Base, Case, bases

from groupwise.config import ConfigError
from groupwise.runs import read_run
from groupwise_look.diagnosis import SEVERITIES, diagnose, headline

QUIET = ("track.console=none", "track.rollouts_every=0", "checkpoint.every=100000")


def measured(case: Case, seed: int, runs: Path, seconds: float) -> dict[str, Any]:
    """Trains a case and returns its line.

    Args:
        case: of the bench.
        seed: of the run.
        runs: where run folders go; of a finished run, only what the doctor reads is kept there.
        seconds: deadline, wall time.
    """
    folder = _folder(case, seed, runs)
    shutil.rmtree(folder, ignore_errors=True)
    settings = [*case.base.set, *case.set, f"seed={seed}", *QUIET]
    begin = bases()[case.base.start] if case.base.start else case.base
    if begin.warm_up and not case.fresh:
        settings.append(f"start={json.dumps(str(_warm_up(begin, seed, runs, seconds)))}")
    status, used = _in_child(lambda: _train(case, settings, folder), folder.with_suffix(".log"), seconds)
    row: dict[str, Any] = {
        "name": case.name,
        "seed": seed,
        "planted_by": case.planted_by,
        "case": case.digest,
        "date": time.strftime("%Y-%m-%d"),
        "exit": status,
        "cpu_seconds": round(used, 1),
    }
    if status != 0:
        log = folder.with_suffix(".log")
        row["error"] = (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:300]
    row |= judged(case, seed, runs) or {"headline": None, "alarms": [], "notes": [], "printed": []}
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.name not in ("metrics.jsonl", "config.json", "summary.json", "rollouts"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return row


def judged(case: Case, seed: int, runs: Path) -> dict[str, Any] | None:
    """Returns what the doctor says of a run: the headline's rule and text, the faults and warnings that are reported,
    the notes, and the rules that were printed while it trained, in their order. `None` where there is no run.
    """
    folder = _folder(case, seed, runs)
    if not (folder / "metrics.jsonl").is_file():
        return None
    run = read_run(folder)
    findings = diagnose(run.rows, run.config)
    cause = headline(findings)
    return {
        "headline": None if cause is None else cause.cause.rule,
        "text": None if cause is None else str(cause),
        "alarms": [finding.rule for finding in findings if finding.severity != SEVERITIES[-1]],
        "notes": [finding.rule for finding in findings if finding.severity == SEVERITIES[-1]],
    }


def _folder(case: Case, seed: int, runs: Path) -> Path:
    return (runs / f"{case.name}-{seed}-{case.digest}").resolve()


def _warm_up(base: Base, seed: int, runs: Path, seconds: float) -> Path:
    """Returns the folder of the run whose warm-up is shared; makes it where it is missing."""
    folder = (runs / f"warm_up-{base.experiment}-{seed}").resolve()
    if not (folder / "summary.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        settings = [base.warm_up, f"seed={seed}", *QUIET]
        log = folder.with_suffix(".log")
        status, _ = _in_child(lambda: _run(base.experiment, settings, folder), log, 2 * seconds)
        if status != 0:
            raise SystemExit(f"the warm-up of {base.experiment} failed: see {log}")
    return folder


def _train(case: Case, settings: Sequence[str], folder: Path) -> None:
    if case.hook:
        module, _, name = case.hook.partition(":")
        getattr(importlib.import_module(module), name)()
    _run(case.base.experiment, settings, folder)


def _run(experiment: str, settings: Sequence[str], folder: Path) -> None:
    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import run

    run(load_experiment(experiment, settings), folder, controls=False)


def _in_child(work: Callable[[], None], log: Path, seconds: float) -> tuple[int | None, float]:
    """Runs a function in a forked process and returns its exit status, none past the deadline, and its CPU seconds.

    A fork shares the libraries that this process has loaded, whose loading would cost more than many of the runs.
    """
    import diffusers  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import torch
    import transformers  # noqa: F401  # pyright: ignore[reportUnusedImport]

    import groupwise.experiment.runner  # noqa: F401  # pyright: ignore[reportUnusedImport]

    torch.set_num_threads(1)
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        _child(work, log)
    deadline, status, used = time.monotonic() + seconds, None, None
    try:
        while used is None and time.monotonic() < deadline:
            ended, code, usage = os.wait4(process, os.WNOHANG)
            if ended:
                status, used = os.waitstatus_to_exitcode(code), usage
            else:
                time.sleep(0.05)
    finally:
        if used is None:
            os.killpg(process, signal.SIGKILL)
            used = os.wait4(process, 0)[2]
    return status, used.ru_utime + used.ru_stime


def _child(work: Callable[[], None], log: Path) -> None:
    """Does the work and ends the process; what is printed goes to the log."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    file = log.open("w")
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = file
    status = 1
    try:
        work()
        status = 0
    except ConfigError as error:
        status = 2
        print(error, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
