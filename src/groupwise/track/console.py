"""The display that a person watches: live progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from groupwise.config.tables import visible
from groupwise.runs import EvaluatedOn
from groupwise.track.tracker import Tracker

SCORE_PREFIX = "eval/"
_NARROW = 60
_SHOWN = 60
_FIRST_ROWS = 10


class ConsoleTracker(Tracker):
    """Shows the step, the time left, the reward, the score of the evaluations and the cause of what live diagnosis
    finds.

    The bar keeps the newest score in sight; a line shows it where it was measured.

    Args:
        total_steps: the steps the run will take.
        score: the metric of an evaluation that is shown (without its prefix `eval/`); unset takes the first one seen.
        live: a bar that redraws itself; off prints plain lines: some fifty on a long run, and each of the first ten of
            a kind.
        console: where to.
        start: steps already done, for a resumed run.
        latest: the newest metrics of a resumed run's evaluations, by name without the prefix.
        evaluated_on: whether the prompts of the evaluations are trained on.

    Example:
        >>> import io
        >>> console = ConsoleTracker(2, None, live=False, console=Console(file=io.StringIO()))
        >>> console.metrics(1, {"reward": 0.5})
        >>> console.console.file.getvalue()
        'step 1/2  reward 0.500\\n'
    """

    def __init__(
        self,
        total_steps: int,
        score: str | None,
        *,
        live: bool | None = None,
        console: Console | None = None,
        start: int = 0,
        latest: Mapping[str, float] | None = None,
        evaluated_on: EvaluatedOn | None = None,
    ) -> None:
        self.console = console or _Screen(highlight=False)
        # Colours can be forced where nobody looks, and a terminal without a cursor cannot redraw.
        self.live = (
            self.console.file.isatty() and self.console.is_terminal and not self.console.is_dumb_terminal
            if live is None
            else live
        )
        self.total_steps = total_steps
        self.score = score or next(iter(latest or {}), None)
        self._latest = {SCORE_PREFIX + name: value for name, value in (latest or {}).items()}
        self._evaluated_on = evaluated_on or EvaluatedOn()
        self._every = max(1, total_steps // 50)
        self._kind, self._rows_of_kind = "", 0
        self._view: _View | None = None
        self._alarm = ""
        if self.live:
            self._view = _View(self.console)
            self._task = self._view.add_task("step", total=total_steps, completed=start)
            self._view.start()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Shows one step."""
        scored = [name for name in values if name.startswith(SCORE_PREFIX)]
        if self.score is None and scored:
            self.score = scored[0].removeprefix(SCORE_PREFIX)
        self._latest |= {name: values[name] for name in scored}
        if self._view is not None:
            self._view.parts = self._parts(values, self._latest) or self._view.parts
            self._view.update(self._task, completed=step)
            return
        # Where rewards begin a run learns fastest.
        kind = "reward" if "reward" in values else "supervised" if "loss_sup" in values else self._kind
        self._kind, self._rows_of_kind = kind, self._rows_of_kind + 1 if kind == self._kind else 1
        labelled_numbers = self._parts(values, values)
        if step % self._every == 0 or step == self.total_steps or scored or self._rows_of_kind <= _FIRST_ROWS:
            took = [f"{values['step_time']:.2f} s"] if "step_time" in values else []
            alarm = [f"! {self._alarm}"] if self._alarm else []
            self.console.print(
                f"step {step}/{self.total_steps}  {'  '.join([*labelled_numbers, *took, *alarm])}", soft_wrap=True
            )

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Shows the first prompt of an evaluation with its answer and its rewards: the same prompt each time."""
        record = records[0] if place == "evaluation" and records else {}
        if not {"prompt", "text", "rewards"} <= record.keys() or not isinstance(record["rewards"], Mapping):
            return
        prompt, answer = (_one_line(record[name]) for name in ("prompt", "text"))
        earned = [f"{name} {value:.3g}" for name, value in record["rewards"].items() if isinstance(value, int | float)]
        line = f"  {prompt} -> {answer}  {', '.join(earned)}"
        self.console.print(line, soft_wrap=self._view is None, markup=False, emoji=False)

    def alarm(self, rule: str) -> None:
        """Shows the cause of what is wrong now, below the bar or at the end of a line."""
        self._alarm = rule
        if self._view is not None:
            self._view.alarm = rule

    def note(self, text: str) -> None:
        """Prints above the bar, broken between words on a terminal."""
        self.console.print(visible(text), soft_wrap=self._view is None, markup=False)

    def close(self) -> None:
        """Leaves the last state of the bar on the screen."""
        if self._view is not None:
            self._view.stop()
            self._view = None

    def _parts(self, values: Mapping[str, float], evaluated: Mapping[str, float]) -> list[str]:
        numbers = [
            (label, values[name])
            for name, label in (("reward", "reward"), ("loss_sup", "supervised loss"))
            if name in values
        ]
        for score in self._scores(evaluated):
            numbers.append((self._evaluated_on.of(score), evaluated[SCORE_PREFIX + score]))
        # A small number, such as a squared error, has three digits in place of three decimals.
        return [
            f"{label} {value:.3f}" if value == 0 or abs(value) >= 0.1 else f"{label} {value:.3g}"
            for label, value in numbers
        ]

    def _scores(self, evaluated: Mapping[str, float]) -> list[str]:
        """Returns the score, and where there are several evaluation sets (`SET/greedy/reward`) that of each."""
        if not self.score:
            return []
        _, _, metric = self.score.partition("/")
        names = [name.removeprefix(SCORE_PREFIX) for name in evaluated if name.startswith(SCORE_PREFIX)]
        return [name for name in names if name == self.score or ("/" in metric and name.partition("/")[2] == metric)]


def _one_line(text: object) -> str:
    """Writes the end of a prompt or of an answer; `repr` shows line feeds, colours and other control characters."""
    if isinstance(text, list):
        text = text[-1].get("content", "") if text and isinstance(text[-1], Mapping) else ""
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[0]}...{shown[-_SHOWN:]}"


class _Screen(Console):
    """A console whose reader may end before the program, as `| head` does, or `| tee` after Ctrl-C. By default Rich
    would end the program there.
    """

    def on_broken_pipe(self) -> None:
        """Ends all output to standard output, also that at the end of the run, and makes the tracker fail."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise BrokenPipeError("nobody reads standard output any more")


class _View(Progress):
    """A bar with its time, the numbers below it, and the alarm below them; every line as wide as the
    terminal at most.
    """

    def __init__(self, console: Console) -> None:
        self.parts: list[str] = []
        self.alarm = ""
        self._screen = console
        bar = BarColumn(bar_width=max(6, min(24, console.width - 30)))
        super().__init__(
            TextColumn("{task.description}"),
            bar,
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Returns the lines that are drawn now; a narrow terminal gets one line a number."""
        yield self.make_tasks_table(self.tasks)
        lines = self.parts if self._screen.width < _NARROW else ["  ".join(self.parts)]
        for line in filter(None, lines):
            yield Text(f"  {line}", no_wrap=True, overflow="ellipsis")
        if self.alarm:
            yield Text(f"  ! {self.alarm} (groupwise doctor)", style="bold red", no_wrap=True, overflow="ellipsis")
