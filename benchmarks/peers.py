"""TRL's own tests of its GRPO trainer, run with TRL's trainer and with Groupwise's in its place.

    make peers TRL=CHECKOUT                              # a checkout of TRL near the installed version
    make peers TRL=CHECKOUT ARGS="--select environment"  # the tests whose names contain a word
    make peers TRL=CHECKOUT ARGS="--keep FOLDER"         # the same command again goes on where it was ended

Nothing is downloaded: models, tokenizer and data of the names that the tests ask for are made here, small
(`peers_hub.py`). TRL itself is the installed one; the checkout gives the tests. A test decides something where one of
the two trainers passes it. The command ends with 1 where TRL's trainer passes a test that ours fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from groupwise.runs import read_lines

ROOT = Path(__file__).resolve().parents[1]
TEST_FILE = Path("tests/test_grpo_trainer.py")
DATA_SCRIPT = Path("scripts/generate_zen_dataset.py")
TRAINERS = ("trl", "groupwise")


@final
@dataclass(frozen=True)
class Outcome:
    """The outcome of a test: `passed`, `failed`, `skipped` or `xfailed`, and the report of what did not pass."""

    outcome: str
    reason: str = ""

    @property
    def last_line(self) -> str:
        """The error of a failed test, as one line."""
        errors = re.findall(r"^E\s+(\S.*)$", self.reason, re.MULTILINE)
        lines = errors or self.reason.strip().splitlines() or [""]
        return lines[0].strip()[:200]


def run(trainer: str, checkout: Path, folder: Path, words: Sequence[str], steps: int = 0) -> dict[str, Outcome]:
    """Runs the tests with a trainer and returns their outcomes by name.

    Args:
        trainer: `trl` or `groupwise`.
        checkout: a checkout of TRL.
        folder: the models and data of `peers_hub.make_hub`.
        words: further arguments of pytest.
        steps: steps of a training whose test names no number of them; 0 leaves them to the test.
    """
    path = folder / f"{trainer}.jsonl"
    variables = {
        **os.environ,
        "PEERS_FOLDER": str(folder),
        "PEERS_TRAINER": trainer,
        "PEERS_STEPS": str(steps),
        "PEERS_OUTCOMES": str(path),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    plugin = ["-p", "benchmarks.peers_plugin", "-p", "no:cacheprovider", "--rootdir", str(checkout), "-c", os.devnull]
    # The plugin imports the installed TRL before pytest puts the checkout, which has a folder `trl`, on the path.
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *plugin, str(checkout / TEST_FILE), *words]
    done = len(read_lines(path).rows)
    print(f"the tests with {trainer}'s trainer" + (f" but {done} that are done" if done else ""), flush=True)
    subprocess.run(command, cwd=folder, env=variables, check=False)
    lines = read_lines(path).rows
    if not lines:
        raise SystemExit(f"pytest ran no test with the trainer {trainer!r}; the reason stands above")
    return {line["test"].split("::", 1)[1]: Outcome(line["outcome"], line["reason"]) for line in lines}


def why(theirs: Outcome, ours: Outcome, missing_models: Sequence[str]) -> str:
    """Says why a test that neither trainer passes decides nothing."""
    for outcome in (theirs, ours):
        if outcome.outcome == "skipped":
            return outcome.reason.removeprefix("Skipped: ").strip()
    if theirs.outcome == "xfailed":
        return "TRL expects it to fail"
    for name in missing_models:
        if name in theirs.reason:
            return f"no small {re.sub('^tiny-', '', name)} is made here"
    if re.search(r"LocalEntryNotFound|OfflineMode|ConnectionError|couldn't connect|not a local folder", theirs.reason):
        return "it asks the hub for something else"
    return f"it fails with TRL's trainer too: {theirs.last_line}"


def report(theirs: Mapping[str, Outcome], ours: Mapping[str, Outcome], missing_models: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the comparison of two trainers over the same tests."""
    names = sorted(theirs.keys() | ours.keys())
    absent = Outcome("failed", "the test was not reached")
    pairs = {name: (theirs.get(name, absent), ours.get(name, absent)) for name in names}
    passed = [sum(pair[place].outcome == "passed" for pair in pairs.values()) for place in range(2)]
    decided = [name for name, pair in pairs.items() if "passed" in (pair[0].outcome, pair[1].outcome)]
    yield f"{len(names)} tests, {len(decided)} decide something: TRL's trainer passes {passed[0]}, ours {passed[1]}"
    for title, place in (("TRL's", 0), ("ours", 1)):
        one_sided = [name for name in decided if pairs[name][1 - place].outcome != "passed"]
        yield f"only {title} passes: {len(one_sided)}"
        yield from (f"  {name}: {pairs[name][1 - place].last_line}" for name in one_sided)
    reasons = Counter(why(*pairs[name], missing_models) for name in names if name not in decided)
    yield f"undecided: {len(names) - len(decided)}"
    yield from (f"  {count} {reason}" for reason, count in reasons.most_common())


def lost(theirs: Mapping[str, Outcome], ours: Mapping[str, Outcome]) -> list[str]:
    """Lists the tests that TRL's trainer passes and ours does not."""
    absent = Outcome("failed")
    return [
        name
        for name, outcome in theirs.items()
        if outcome.outcome == "passed" and ours.get(name, absent).outcome != "passed"
    ]


def checked(checkout: Path) -> Path:
    """Returns the folder of a checkout, or ends with what it lacks."""
    for path in (TEST_FILE, DATA_SCRIPT):
        if not (checkout / path).is_file():
            raise SystemExit(
                f"{checkout} has no {path}; give a checkout of TRL: git clone https://github.com/huggingface/trl, then"
                " make peers TRL=trl"
            )
    return checkout.resolve()


def hub(folder: Path, checkout: Path, num_rows: int | None, qwen_ids: bool) -> list[str]:
    """Makes models and data in a folder, where an earlier call has not; returns the models that are not made here."""
    record = folder / "missing_models.json"
    if record.exists():
        return json.loads(record.read_text(encoding="utf-8"))
    from benchmarks.peers_hub import make_hub

    for name in ("hub", "data"):
        shutil.rmtree(folder / name, ignore_errors=True)
    missing_models = make_hub(folder, checkout, checkout / TEST_FILE, num_rows, qwen_ids)
    record.write_text(json.dumps(missing_models), encoding="utf-8")
    return missing_models


def main() -> None:
    """Runs both trainers over the tests of a checkout and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--select", default="not Slow and not VLM", help="pytest -k: the tests to run (%(default)s)")
    parser.add_argument(
        "--rows", type=int, default=0, help="rows of each data set: fewer are faster and decide less; 0 for all"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        help="steps of a training whose test names none: fewer are faster and decide less; 0 leaves it to the test",
    )
    parser.add_argument("--qwen-ids", action="store_true", help="Qwen's vocabulary for every model: slow, decides more")
    parser.add_argument(
        "--keep", type=Path, help="a folder for models, data and outcomes, so that the command can be ended and go on"
    )
    parser.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist (%(default)s)")
    arguments = parser.parse_args()
    checkout = checked(arguments.checkout)
    import trl

    version_file = checkout / "VERSION"
    version = version_file.read_text(encoding="utf-8").strip() if version_file.is_file() else "of an unknown version"
    print(f"TRL {trl.__version__} is installed; the tests are those of a checkout {version}", flush=True)
    words = ["-k", arguments.select, *(["-n", str(arguments.workers)] if arguments.workers else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.keep or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        missing_models = hub(folder, checkout, arguments.rows or None, arguments.qwen_ids)
        theirs, ours = (run(trainer, checkout, folder, words, arguments.steps) for trainer in TRAINERS)
    print("\n".join(report(theirs, ours, missing_models)))
    sys.exit(bool(lost(theirs, ours)))


if __name__ == "__main__":
    main()
