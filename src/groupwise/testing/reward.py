"""The laws of a reward: functions of the values that it gives to a small batch of an author's members."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.reward import Reward, RewardError, RewardFunction, Rewards
from groupwise.testing.slot import BrokenLaws

# Hostile completions: a reward that reads them may neither raise, hang, execute nor print them.

MARK = "executed_by_a_reward"
"""The file that a text creates in the working directory if a reader executes the text."""

CODE = f"__import__('os').system('touch {MARK}')"
_MEGABYTES = 10_000_000

SHORT: dict[str, str] = {
    "nothing": "",
    "spaces": " \t\r\n ",
    "code": CODE,
    "code in a list": f"[{CODE}]",
    "code in a tag": f"<answer>{CODE}</answer>",
    "code in brackets": f"\\boxed{{{CODE}}}",
    "code among digits": f"19 - 9 + 3 if {CODE} else 0",
    "code by attributes": "().__class__.__base__.__subclasses__()",
    "code as a lambda": f"(lambda: {CODE})()",
    "code in a string of sympy's": f"sympify('{CODE.replace(chr(39), chr(34))}')",
    "code after a line": f"19-9+3\n{CODE}",
    "f-string": f'f"{{{CODE}}}"',
    "print": "print('executed_by_a_reward' * 9)",
    "tower": "9**9**9**9",
    "tower in brackets": "((((9**99)**99)**99)**99)**99",
    "power": "879474**93367753",
    "tower in LaTeX": "$9^{9^{9^{9}}}$",
    "factorials": "$(((99999)!)!)!$",
    "factorial": "99999999!",
    "shift": "1<<10**12",
    "repeated list": "[0]*10**12",
    "repeated string": "'a'*10**12",
    "range": "list(range(10**12))",
    "large exponent": "1e999999999",
    "larger exponent": "1e999999999999999999999",
    "infinite": "1e999",
    "nan": "nan",
    "inf": "-inf",
    "NaN in JSON": "[NaN, Infinity]",
    "5000 digits": "9" * 5000,
    "5000 digits in an answer": f"<think>.</think><answer>{'9' * 5000}</answer>",
    "5000 digits in JSON": f"[[{'9' * 5000}]]",
    "digits of others": "٣٤٥ ²³ ௧",
    "deep brackets": "(" * 5000 + "1" + ")" * 5000,
    "deep lists": "[" * 5000 + "]" * 5000,
    "deep objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "deep signs": "-" * 5000 + "1",
    "deep negation": "¬" * 5000 + "P",
    "deep fractions": "$" + "\\frac{1}{" * 500 + "2" + "}" * 500 + "$",
    "deep roots": "$" + "\\sqrt{" * 500 + "2" + "}" * 500 + "$",
    "sum": "$\\sum_{i=1}^{10^{12}} \\frac{1}{i^{i}}$",
    "integral": "$\\int_0^1 x^{x^{x^x}} dx$",
    "binomial": "$\\binom{10^{9}}{5*10^{8}}$",
    "many turns": "U99999999999 D" + "9" * 30,
    "many moves": "UDLR" * 50_000,
    "NUL": "4\x00$\x00$",
    "surrogates": "\ud800 4 \udfff",
    "bidirectional": "\u202e4\u2066\u200f",
    "combining marks": "4" + "\u0301" * 5000,
    "other numbers": "½ ⅓ Ⅳ 四",
    "formats": "%s%n%1000000000d {0} {0.__class__} {:>1000000000}",
    "unclosed tags": "<think>" * 2000 + "<answer>" * 2000,
    "nested tags": "<answer>" * 2000 + "4" + "</answer>" * 2000,
    "nested repetition": "a" * 60 + "!",
    "alternation": "ab" * 60,
    "words": "score " * 3000,
    "name and spaces": "score" + " " * 50_000 + "!",
    "claims": "Al is a knight " * 2000,
    "an object": '{"a": {"b": [1, {"c": null}]}}',
    "not the object": '[{"a": 1}, null, true, -1, "x", 1.5]',
    "commas": "," * 5000,
    "equations": "A=1,B=" + "9" * 5000,
}
LONG: dict[str, str] = {
    "10 MB of one letter": "a" * _MEGABYTES,
    "10 MB of digits": "9" * _MEGABYTES,
    "10 MB of words": (
        "The number is 4, a-b'c_9 <answer>(1+x)**2</answer> \u00e9 [1, 2] $x$ is a knight. " * (_MEGABYTES // 80)
    ),
    "10 MB of letters and digits": "a1" * (_MEGABYTES // 2),
    "10 MB of brackets": "(" * _MEGABYTES,
    "10 MB of a sum": "$" + "1+" * (_MEGABYTES // 2) + "1$",
    "10 MB of spaces": "Al" + " " * _MEGABYTES,
    "10 MB of lines": "4\n" * (_MEGABYTES // 2),
    "10 MB of opening tags": "<answer>" * (_MEGABYTES // 8),
    "10 MB of JSON": "[" + "[1]," * (_MEGABYTES // 4) + "1]",
}
TEXTS = {**SHORT, **LONG}


GUIDE = "docs/guide/rewards.md"
_NAME = "reward"
_ALL_TEXTS = "hostile: all texts at once"
PATIENCE = 5.0
"""Seconds beyond its limit after which a batch counts as one that blocks the interpreter."""


@final
@dataclass(frozen=True)
class _Batch:
    """Members that a reward scores."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.completions)

    def rows(self, indices: Sequence[int]) -> _Batch:
        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[index] for index in indices]

        return _Batch(
            pick(self.prompts), pick(self.completions), {name: pick(values) for name, values in self.columns.items()}
        )

    def reading(self, names: Sequence[str]) -> _Batch:
        return _Batch(self.prompts, self.completions, {name: self.columns[name] for name in names})


@final
@dataclass(frozen=True)
class _Trial:
    """An opened reward, the author's members, and their values."""

    rewards: Rewards
    batch: _Batch
    values: list[Any]
    needs: Sequence[str]
    compares: bool
    tolerance: float

    def differ(self, left: Sequence[Any], right: Sequence[Any]) -> int | None:
        """Returns the index of the first member whose two values differ, or `None`."""
        differ = (index for index, pair in enumerate(zip(left, right, strict=True)) if not self._same(*pair))
        return next(differ, None)

    def _same(self, left: Any, right: Any) -> bool:
        if left is None or right is None:
            return left is right
        return np.shape(left) == np.shape(right) and bool(np.allclose(left, right, rtol=self.tolerance, atol=1e-9))


def check_reward(
    reward: Reward | RewardFunction,
    completions: Sequence[Any],
    *,
    prompts: Sequence[Any] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    compares: bool = False,
    hostile: Mapping[str, str] = SHORT,
    seconds: float = 30.0,
    tolerance: float = 1e-4,
) -> None:
    """Tests a reward against every law that training relies on.

    A reward gives one finite number (or map, or None) a member; the same members get the same numbers again, in another
    order, and without their neighbours; the reward declares every column that it reads and changes no input; any text
    of a policy is scored in time, affects its own member alone, and is never executed.

    Args:
        reward: a configured reward, or a function `reward(prompts, completions, **columns)`.
        completions: two or more members of different value: texts, chats, or images.
        prompts: one prompt a member; unset gives every member an empty prompt.
        columns: data columns, one entry a member.
        compares: whether the reward compares the members of a batch with each other, so that neighbours count.
        hostile: name -> text that takes a member's place; used where completions are texts or chats.
        seconds: limit for the scoring of one batch.
        tolerance: relative difference that two computations of one value may have.

    Raises:
        BrokenLaws: at least one law does not hold; the message lists all of them.
        ValueError: there are fewer than two completions, or a column has another length.

    Example:
        >>> from groupwise.reward import ExactAnswer
        >>> check_reward(ExactAnswer(), ["4", "5"], columns={"answer": ["4", "4"]})
        >>> check_reward(lambda completions: [len(completions)], ["4", "5"])
        Traceback (most recent call last):
        groupwise.testing.slot.BrokenLaws: 1 law of a reward is broken (docs/guide/rewards.md):
        - values: reward 'reward' returned 1 values for 2 members; write one entry a member, None where there is none
    """
    batch = _Batch(list(prompts or [""] * len(completions)), list(completions), dict(columns or {}))
    lengths = {"prompts": len(batch.prompts), **{name: len(values) for name, values in batch.columns.items()}}
    if len(batch) < 2 or any(length != len(batch) for length in lengths.values()):
        raise ValueError(
            f"check_reward: {len(batch)} completions beside {lengths}; give two or more, and one entry of all others a"
            " completion"
        )
    trial = functools.partial(_laws, reward, batch, compares, hostile, seconds, tolerance)
    broken = _in_time(functools.partial(trial, False), seconds)
    if any(sentence.startswith(_ALL_TEXTS) for sentence in broken):
        broken = _in_time(functools.partial(trial, True), seconds)
    if broken:
        raise BrokenLaws(broken, "a reward", GUIDE)


def _laws(
    reward: Reward | RewardFunction,
    batch: _Batch,
    compares: bool,
    hostile: Mapping[str, str],
    seconds: float,
    tolerance: float,
    singly: bool,
    report: Callable[[str], None],
) -> list[str]:
    report("values: the author's own members")
    try:
        with Rewards({_NAME: _limited(reward, seconds)}) as rewards:
            needs = rewards.needs[_NAME]
            if missing := [name for name in needs if name not in batch.columns]:
                return [f"columns: it needs {missing[0]!r}, which is not among the columns that it is tried with"]
            before = copy.deepcopy(batch)
            opened = rewards._rewards[_NAME]  # pyright: ignore[reportPrivateUsage]
            copies, opened.copies = opened.copies, False
            try:
                values = _scored(rewards, batch)
            except (RewardError, _NotScored) as error:
                return [f"values: {error}"]
            opened.copies = copies
            broken = list(_unchanged(batch, before))
            if all(value is None for value in values):
                broken.append("values: it gave no member a number; try it with members that it can judge")
            trial = _Trial(rewards, before, values, needs, compares, tolerance)
            for law in (_repeat, _order, _neighbours, _columns):
                report(f"{law.__name__.strip('_')}: the author's own members")
                try:
                    broken += law(trial)
                except (RewardError, _NotScored) as error:
                    broken.append(f"{law.__name__.strip('_')}: {error}")
            return [*broken, *_hostile(trial, hostile, singly, report)]
    except RewardError as error:
        return [f"open: {error}"]


class _NotScored(Exception):
    """The error of a batch without scores: it took too long, or the reward raised."""


def _limited(reward: Any, seconds: float) -> Any:
    """Returns the same reward with a time limit, and with errors that are raised."""
    if isinstance(reward, Reward):
        limit = min(seconds, reward.timeout_seconds or seconds)
        return reward.model_copy(update={"timeout_seconds": limit, "on_error": "raise"})

    @functools.wraps(reward)
    def limited(*arguments: Any, **columns: Any) -> Any:
        return reward(*arguments, **columns)

    vars(limited).update(timeout_seconds=seconds, on_error="raise")
    return limited


def _scored(rewards: Rewards, batch: _Batch) -> list[Any]:
    table = rewards.score(batch.prompts, batch.completions, batch.columns)
    for event in table.events:
        if event.name in ("timeout", "error"):
            raise _NotScored(f"{event.name} {event.detail}".strip() + f" for {event.count} members")
    return list(table.maps[_NAME]) if _NAME in table.maps else list(table.values[_NAME])


def _unchanged(batch: _Batch, before: _Batch) -> Iterator[str]:
    pairs = {
        "prompts": (batch.prompts, before.prompts),
        "completions": (batch.completions, before.completions),
        **{name: (batch.columns[name], values) for name, values in before.columns.items()},
    }
    for name, (current, original) in pairs.items():
        if repr(current) != repr(original):
            yield f"inputs: it changed {name}; a run gives it a copy, and who calls it elsewhere may not: change a copy"


def _repeat(trial: _Trial) -> Iterator[str]:
    repeated = _scored(trial.rewards, trial.batch)
    if (index := trial.differ(repeated, trial.values)) is not None:
        yield (
            f"repeat: the same batch gave member {index} {repeated[index]} after {trial.values[index]}; a resumed run"
            " would take another course: draw nothing, or from a seed of what is judged"
        )


def _order(trial: _Trial) -> Iterator[str]:
    indices = list(range(len(trial.batch)))[::-1]
    turned = _scored(trial.rewards, trial.batch.rows(indices))
    if (index := trial.differ(turned[::-1], trial.values)) is not None:
        yield (
            f"order: in a batch turned round member {index} got {turned[::-1][index]} and not {trial.values[index]}; a"
            " value belongs to the member, not to its place"
        )


def _neighbours(trial: _Trial) -> Iterator[str]:
    if trial.compares:
        return
    for index in range(len(trial.batch)):
        (single,) = _scored(trial.rewards, trial.batch.rows([index]))
        if trial.differ([single], [trial.values[index]]) is not None:
            yield (
                f"neighbours: without its neighbours member {index} got {single} and not {trial.values[index]}; judge"
                " each by itself, or write compares=True where comparing is meant"
            )
            return


def _columns(trial: _Trial) -> Iterator[str]:
    """Yields a broken law of columns: the reward works without the columns that it does not declare."""
    try:
        _scored(trial.rewards, trial.batch.reading(trial.needs))
    except (RewardError, _NotScored) as error:
        stated = ", ".join(trial.needs) or "none"
        yield (
            f"columns: with those alone that it says it needs ({stated}) it fails: {error}; name every column that it"
            " cannot do without as a parameter, or in needs"
        )


def _hostile(trial: _Trial, hostile: Mapping[str, str], singly: bool, report: Callable[[str], None]) -> Iterator[str]:
    """Yields broken laws of hostile texts: they are scored, and ordinary members in the same batch keep their
    values.
    """
    shapes = {type(completion) for completion in trial.batch.completions}
    if not shapes <= {str, list}:
        return
    executed = Path(MARK)
    executed_before = executed.exists()

    def attempt(texts: Mapping[str, str]) -> str:
        chat = shapes == {list}
        hostile_completions = [[{"role": "assistant", "content": text}] if chat else text for text in texts.values()]
        last_index = len(trial.batch) - 1
        batch = trial.batch.rows([0, *[0] * len(hostile_completions), last_index])
        try:
            values = _scored(
                trial.rewards,
                _Batch(
                    batch.prompts, [batch.completions[0], *hostile_completions, batch.completions[-1]], batch.columns
                ),
            )
        except (RewardError, _NotScored) as error:
            return str(error)
        unchanged = trial.differ([values[0], values[-1]], [trial.values[0], trial.values[last_index]]) is None
        return "" if unchanged or trial.compares else "an ordinary member beside it gets another value"

    report(_ALL_TEXTS)
    if singly or attempt(hostile):
        for name, text in hostile.items():
            report(f"hostile: the text {name!r}")
            if problem := attempt({name: text}):
                yield f"hostile: on the text {name!r}: {problem}; give it the value of a wrong answer"
                break
        else:
            yield "hostile: many texts at once take too long or fail, and none by itself does"
    if executed.exists() and not executed_before:
        executed.unlink()
        yield "hostile: it ran code that stood in a completion; never give a policy's words to eval, exec or sympify"


def _in_time(work: Callable[[Callable[[str], None]], list[str]], seconds: float) -> list[str]:
    """Runs the work in a separate process, which is killed if the work does not end, because a thread inside a regular
    expression cannot be stopped. Without fork, the work runs in this process.
    """
    torch = sys.modules.get("torch")
    if "fork" not in multiprocessing.get_all_start_methods() or (torch is not None and torch.cuda.is_initialized()):
        return work(lambda law: None)
    context: Any = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(work(lambda law: sender.send(law)))
        except BaseException as error:
            sender.send([f"reward: {type(error).__name__}: {error}"])

    process = context.Process(target=run)
    process.start()
    sender.close()
    law = "open"
    try:
        # Slow code that can be interrupted has hit its own limit before this deadline.
        while receiver.poll(seconds + PATIENCE):
            message = receiver.recv()
            if isinstance(message, list):
                return message
            law = message
        return [f"{law}: it takes more than {seconds + PATIENCE:g} s and cannot be interrupted; bound what it computes"]
    except EOFError:
        return [f"{law}: its process ended; a reward must not end or kill the process that it runs in"]
    finally:
        process.kill()
        process.join()
