"""A reward in a process of its own, which can be killed when it hangs and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, final

from groupwise.reward.base import Reward
from groupwise.reward.error import RewardError
from groupwise.reward.scoring.process_output import Printed
from groupwise.reward.scoring.trainer_arguments import TRAINER_ARGUMENTS
from groupwise.reward.text import Text
from groupwise.reward.value_with_event import Noted

_PASSED_VARIABLES = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "PATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
        "TMPDIR",
        "TZ",
        "VIRTUAL_ENV",
    }
)


@final
class ProcessReward:
    """Calls a configured reward in another process, by lines of JSON; columns must therefore be JSON-able.

    The process lives until `close`, a time limit (`cancel`), or the end of this one, and is started again at the next
    call.

    Example:
        >>> from groupwise.reward.texts.length import Length
        >>> with contextlib.closing(ProcessReward(Length(target=2))) as reward:
        ...     reward(["", ""], ["one two", "one"])
        [1.0, 0.5]
    """

    def __init__(self, reward: Reward) -> None:
        self.needs = reward.needs
        self._reward = reward
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._begin()

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        trainer: dict[str, Any] = {name: columns[name] for name in TRAINER_ARGUMENTS if name in columns}
        columns = {name: values for name, values in columns.items() if name not in trainer}
        if (reads := self._reward.reads) is not None:
            columns = {name: columns[name] for name in reads if name in columns}
        state = trainer["trainer_state"].table() if "trainer_state" in trainer else None
        try:
            line = json.dumps({"prompts": prompts, "completions": completions, "columns": columns, "state": state})
        except TypeError as error:
            raise RewardError(
                f'the columns cannot be sent to another process: {error}; write isolation = "thread"'
            ) from error
        process = self._process or self._begin()
        answer = self._exchange(process, line)
        if logged := answer.get("logged"):
            for name, values in logged["metrics"].items():
                for value in values:
                    trainer["log_metric"](name, value)
            for column, entries in logged["columns"].items():
                trainer["log_extra"](column, entries)
        return [Noted(**value) if isinstance(value, dict) else value for value in answer["values"]]

    def cancel(self) -> None:
        """Kills the process, with whatever it started."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # The pipes are left to the garbage collector, because a thread may still be reading.
        process.wait()

    close = cancel

    def _begin(self) -> subprocess.Popen[str]:
        # -P keeps the working directory from being searched before every library, as in the command itself.
        command = [sys.executable, "-P", "-m", "groupwise.reward.scoring.process_main"]
        # A path from which this process imports may have been added by hand.
        environment = self._environment() | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        error, printed = os.pipe()
        try:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": printed}
            process = subprocess.Popen(
                command, **pipes, text=True, encoding="utf-8", env=environment, start_new_session=True
            )
        finally:
            os.close(printed)
        self._printed = Printed(error)
        self._process = process
        self._exchange(process, self._reward.model_dump_json())
        return process

    def _environment(self) -> dict[str, str]:
        """Returns the variables of this process. A shipped reward that is scored member by member receives only a few
        of them: it needs no key that may be among them.
        """
        if self._reward.member_limits is None:
            return dict(os.environ)
        # The process forks, so libraries of C++ must not start threads in it.
        return {
            name: value for name, value in os.environ.items() if name in _PASSED_VARIABLES or name.startswith("LC_")
        } | {"OMP_NUM_THREADS": "1"}

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        reply = ""
        self._printed.begin()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        if not reply:
            status = process.wait()
            if self._process is process:
                self._process = None
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise RuntimeError(f"the process of the reward ended with {how}")
        answer = json.loads(reply)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer
