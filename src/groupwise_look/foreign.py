"""Runs of other trainers: their metrics files, read under the names of ours.

`trainer_state.json` of TRL, the JSON lines that verl and prime-rl write, and CSV files of Weights & Biases. Only
columns whose meaning is ours are taken; rules whose metrics are not there stay silent.
"""

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, read_json
from groupwise.runs import Run, find_runs, read_lines, read_run
from groupwise.runs.folder import RunFolder, is_run, natural

STATE = "trainer_state.json"
_NOT_FINITE = {"nan", "inf", "infinity"}
_STEPS = ("train/global_step", "training/global_step", "global_step", "step", "Step", "_step")
"""The column of the step: the first of these that a file has. W&B's own `_step` counts logged rows."""

NAMES: Mapping[str, str] = {
    # TRL; W&B writes its columns behind `train/`.
    r"(?:train/)?(reward|kl|entropy|grad_norm|learning_rate|frac_reward_zero_std|step_time)": r"\1",
    r"(?:train/)?(completions/(?:mean_length|clipped_ratio)|clip_ratio/region_mean)": r"\1",
    r"(?:train/)?(sampling/sampling_logp_difference/mean|rewards/[^/]+/(?:mean|std))": r"\1",
    # Over all members since TRL 1.0; the spread inside groups is at most this.
    r"(?:train/)?reward_std": "reward_std",
    r"(?:train/)?(?:policy_)?loss": "loss_pg",
    r"eval[_/](reward|rewards/[^/]+/mean)": r"eval/sampled/\1",
    # verl
    r"critic/score/mean": "reward",
    r"actor/(entropy|grad_norm)": r"\1",
    r"actor/kl_loss": "kl",
    r"actor/lr": "learning_rate",
    r"actor/pg_loss": "loss_pg",
    r"actor/pg_clipfrac": "clip_ratio/region_mean",
    r"response_length/mean": "completions/mean_length",
    r"response_length/clip_ratio": "completions/clipped_ratio",
    r"timing_s/step": "step_time",
    r"val-core/(.+)/(?:reward|score|acc)/mean@\d+": r"eval/\1/reward",
    # prime-rl, now and before 0.8
    r"train/agg/all/[^/]+/reward/mean|reward/all/mean": "reward",
    r"train/agg/all/[^/]+/is_truncated/mean|is_truncated/all/mean": "completions/clipped_ratio",
    r"train/agg/all/[^/]+/num_output_tokens/mean|decode_len/all/mean": "completions/mean_length",
    r"train/agg/all/[^/]+/solved_none|solve_none/all": "groups/all_wrong",
    r"train/agg/all/[^/]+/solved_all|solve_all/all": "groups/all_right",
    r"optim/lr": "learning_rate",
    r"optim/grad_norm": "grad_norm",
    r"loss/mean": "loss_pg",
    r"entropy/all/mean": "entropy",
    r"time/step": "step_time",
    r"eval/([^/]+)/all/[^/]+/avg@\d+": r"eval/\1/reward",
}
"""Their columns, as patterns of the whole name -> our metric."""


def read_runs(paths: Iterable[Path], *, warm_ups: bool = False) -> list[Run]:
    """Reads runs of Groupwise, and metrics files of TRL, verl, prime-rl and Weights & Biases.

    Args:
        paths: folders of ours; a file, or a folder of TRL with `trainer_state.json` in it or in a checkpoint.
        warm_ups: see `groupwise.runs.find_runs`.

    Raises:
        ConfigError: a path holds neither.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "run.csv"
        >>> _ = file.write_text("Step,tidy - train/reward,tidy - train/reward__MIN\\n1,0.25,0.25\\n2,0.5,0.5\\n")
        >>> (run,) = read_runs([file])
        >>> run.name, run.series("reward")
        ('tidy', ([1, 2], [0.25, 0.5]))
    """
    runs: list[Run] = []
    for path in paths:
        if path.is_file() and RunFolder(path.parent).environment.is_file():
            path = path.parent
        if (file := _metrics_file(path)) is None:
            runs += [read_run(folder) for folder in find_runs([path], warm_ups=warm_ups)]
        else:
            runs += _read(file)
    return runs


def _metrics_file(path: Path) -> Path | None:
    """Returns the file of another trainer that a path names, or None."""
    if path.is_file():
        return path
    if not path.is_dir() or is_run(path):
        return None
    checkpoints = sorted(path.glob(f"checkpoint-*/{STATE}"), key=lambda file: natural(file.parent))
    return next((file for file in [path / STATE, *reversed(checkpoints)] if file.is_file()), None)


def _read(file: Path) -> list[Run]:
    folder = file.resolve().parent
    settings: dict[str, Any] = {}
    remarks: list[str] = []
    name = file.stem
    if file.suffix.lower() == ".csv":
        tables = _by_run(file)
    elif file.name == STATE:
        name = (folder.parent if folder.name.startswith("checkpoint-") else folder).name
        state = read_json(file)
        state = state if isinstance(state, dict) else {}
        settings["train"] = {"num_steps": state.get("max_steps")}
        history = state.get("log_history")
        tables = {"": [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []}
    else:
        # verl nests the metrics of a row in "data".
        lines = read_lines(file)
        remarks += lines.remarks
        tables = {"": [{**row, **nested} if isinstance(nested := row.get("data"), dict) else row for row in lines.rows]}
    runs = []
    for own_name, table in tables.items():
        rows, notes = _rows(table)
        if any("reward" in row for row in rows):
            # Runs of equal settings are drawn as one variant with several seeds; these are told apart by their file.
            named = {**settings, "name": own_name or name, "file": f"{file.resolve()}{own_name and '#'}{own_name}"}
            runs.append(Run(file, named, [], None, rows, "unfinished", [*remarks, *notes]))
        elif own_name:
            remarks.append(f"run {own_name!r} has no reward and is left out")
    if not runs:
        raise ConfigError(
            f"{file}: no reward by step in it; give trainer_state.json of TRL, the JSON lines of verl or prime-rl,"
            " a CSV file of W&B with a step and a reward (such as train/reward), or a folder of Groupwise"
        )
    return runs


def _by_run(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Divides the rows of a CSV file by run: W&B's charts write columns `RUN - METRIC`, its histories plain names."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            columns, *rows = list(csv.reader(text)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file} is no CSV file in UTF-8 ({error}); export it again") from None
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise ConfigError(f"{file}: two columns are called {twice[0]!r}; give the runs names of their own in W&B")
    if wrong := next((row for row in rows if row and len(row) != len(columns)), None):
        raise ConfigError(
            f"{file}: a row has {len(wrong)} cells and the first line {len(columns)}; separate cells by commas"
        )
    is_chart = not any(_name(name) == "reward" for name in columns)
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        parts: dict[str, dict[str, Any]] = {}
        for column, cell in zip(columns, row, strict=False):
            run, _, metric = column.rpartition(" - ") if is_chart else ("", "", column)
            if cell and not metric.endswith(("__MIN", "__MAX")):
                parts.setdefault(run, {})[metric] = cell
        # A column of the chart itself, its step, belongs to every run.
        shared = parts.pop("", {}) if is_chart else {}
        for run, values in parts.items():
            runs.setdefault(run, []).append({**shared, **values})
    return runs


def _rows(table: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the rows under our names, one a step, and remarks on columns that were not read or are not finite."""
    by_step: dict[int, dict[str, Any]] = {}
    unread: dict[str, None] = {}
    broken: dict[str, int] = {}
    step_column = next((name for name in _STEPS if any(name in row for row in table)), None)
    for row in table:
        if step_column is None or (step := _number(row.get(step_column))) is None:
            continue
        ours = by_step.setdefault(int(step), {"step": int(step)})
        for column, value in row.items():
            name, number = _name(column), _number(value)
            # A JSON reader turns NaN into None.
            is_lost = number is None and (value is None or str(value).strip().lower().lstrip("+-") in _NOT_FINITE)
            if name in ("loss_pg", "grad_norm"):
                ours["updates/not_finite"] = max(ours.get("updates/not_finite", 0.0), float(is_lost))
                ours |= {"updates/taken": 1.0 - ours["updates/not_finite"], "updates/skipped": 0.0}
            if number is None:
                if name and is_lost:
                    broken.setdefault(column, int(step))
            elif name is not None:
                ours.setdefault(name, number)
            elif column not in _STEPS:
                unread.setdefault(column)
        _derive(row, ours)
    remarks = [f"{column} is NaN or infinite in step {step}, and perhaps later" for column, step in broken.items()]
    if unread:
        remarks.append(f"{len(unread)} columns have no counterpart here: {', '.join(list(unread)[:3])}, ...")
    return [by_step[step] for step in sorted(by_step)], remarks


def _derive(row: Mapping[str, Any], ours: dict[str, Any]) -> None:
    """Adds what follows from several columns."""
    if "groups/all_wrong" in ours and "groups/all_right" in ours:
        ours.setdefault("frac_reward_zero_std", ours["groups/all_wrong"] + ours["groups/all_right"])
    lowest, highest = (_number(row.get(f"critic/advantages/{end}")) for end in ("min", "max"))
    if lowest is not None and highest is not None:
        # verl does not count flat groups: all are flat where no advantage differs, and otherwise at least none.
        ours.setdefault("frac_reward_zero_std", float(lowest == highest))
    for name in [name for name in ours if name.startswith("rewards/") and name.endswith("/mean")]:
        # No file holds the weights; a reward that is listed is trained on unless its author gave it the weight 0.
        ours.setdefault(f"{name.removesuffix('mean')}weight", 1.0)


@cache
def _name(column: str) -> str | None:
    """Returns our name of a column, or None."""
    return next((found.expand(ours) for theirs, ours in NAMES.items() if (found := re.fullmatch(theirs, column))), None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
