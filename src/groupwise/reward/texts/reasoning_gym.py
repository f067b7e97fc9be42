"""Tasks of reasoning-gym, scored by the task's own rule."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, cast, final

from pydantic import Field

from groupwise.config.errors import Mebibytes
from groupwise.reward.base import MemberLimits, Noted, Reward, RewardError, Value
from groupwise.reward.completions import Text, completion_text, excerpt, prompt_text
from groupwise.reward.texts.answers import Extract

Scorer = Callable[[str | None, dict[str, Any]], float]


@cache
def _scorer(task: str) -> Scorer:
    from reasoning_gym.factory import get_score_answer_fn

    # The library annotates this function without its parameters.
    return cast(Any, get_score_answer_fn(task))


# Some scorers of the library evaluate an answer as Python, inside the wall. They only get answers that evaluate to data
# or a formula: any other answer could write its own score.

_FUNCTIONS = re.compile("a?(sin|cos|tan|cot|sec|csc)|a?(sinh|cosh|tanh)|exp|log|ln|sqrt|Abs|erf|Ei|Si|Ci|li|Integral")
_OF_FORMULAS = (ast.Expression, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Call, ast.Name, ast.Load)


def _is_literal(answer: str) -> bool:
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_formula(answer: str) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(answer, mode="eval")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    # A string is not part of a formula: sympy evaluates the strings that a function is called with.
    numbers = all(isinstance(node.value, int | float) for node in nodes if isinstance(node, ast.Constant))
    return (
        numbers
        and all(isinstance(node, (*_OF_FORMULAS, ast.Constant)) for node in nodes)
        and all(isinstance(function, ast.Name) and _FUNCTIONS.fullmatch(function.id) for function in called)
    )


_HARMLESS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("binary_matrix", "spiral_matrix", "string_insertion", "n_queens"), _is_literal),
    **dict.fromkeys(("countdown", "puzzle24", "polynomial_multiplication"), _is_formula),
    **dict.fromkeys(("simple_integration", "intermediate_integration"), _is_formula),
    # The scorer treats a distance of nan like a distance of 0, so that such an answer would count as right.
    "complex_arithmetic": lambda answer: re.search("(?i)nan|inf", answer) is None,
}
"""Task -> a test that decides which answers other than the expected one its scorer may be given."""


@final
class ReasoningGym(Reward):
    """`score_answer(answer, entry)` of the task, usually in [0, 1].

    The entry is put together from the columns `question` (or the prompt, where there is none), `answer` and `metadata`,
    as reasoning-gym makes them.

    Some of the library's scorers evaluate an answer as Python. All run in a process inside the wall of
    `groupwise.reward.wall`. A text that could write its own score there, being neither a list nor a formula, earns what
    no answer at all earns. Members are scored one by one and killed when one takes too long or too much memory; that
    member is wrong, and counted as `answer_too_slow` or `answer_too_large`. A scorer that raises on an answer, and not
    on the expected one, makes it wrong, counted as `scorer_failed`. Called directly, and not by `score` or `Rewards`,
    it runs in this process, without the wall and these limits.

    Example:
        >>> entry = {"question": "2 + 2 =", "answer": "4", "metadata": {"source_dataset": "basic_arithmetic"}}
        >>> ReasoningGym()([entry["question"]], ["4"], answer=[entry["answer"]], metadata=[entry["metadata"]])
        [1.0]
    """

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    isolation: Literal["process"] = "process"
    """The only way: some answers keep a computer busy for ever, and only a process can be killed."""
    task: str | None = None
    """Name of the task; where absent, each entry's own `metadata.source_dataset`."""
    extract: Extract = Extract()
    """The place of the answer in the completion."""
    seconds_per_answer: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Seconds for one answer; beyond that it counts as wrong."""
    memory_mb: Mebibytes = 1024
    """Mebibytes that scoring one answer may take."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("answer", "metadata")

    @property
    def reads(self) -> tuple[str, ...]:
        return ("question", "answer", "metadata")

    @property
    def member_limits(self) -> MemberLimits:
        return MemberLimits(self.seconds_per_answer, self.memory_mb)

    def open(self) -> ReasoningGym:
        """Returns the function that scores; refuses a task that the library does not have."""
        try:
            if self.task is not None:
                _scorer(self.task)
        except (ImportError, ValueError, AssertionError) as error:
            raise RewardError(
                f"reasoning_gym cannot score the task {self.task!r}: {error}; write a task of the installed"
                " reasoning-gym"
            ) from error
        return self

    def prepare(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Loads the tasks of a batch, so that no member's time is spent on loading."""
        for metadata in (metadata for metadata in columns["metadata"] if metadata is not None):
            _scorer(self._task(metadata))

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        questions = columns.get("question") or [prompt_text(prompt) for prompt in prompts]
        rows = zip(questions, completions, columns["answer"], columns["metadata"], strict=True)
        return [
            None
            if metadata is None
            else self._score(
                completion_text(completion), {"question": question, "answer": answer, "metadata": metadata}
            )
            for question, completion, answer, metadata in rows
        ]

    def _task(self, metadata: Any) -> str:
        task = self.task or (metadata or {}).get("source_dataset")
        if task is None:
            raise ValueError(f"metadata {metadata!r} does not name its task in source_dataset; set task to its name")
        return task

    def _score(self, text: str, entry: dict[str, Any]) -> Value:
        task = self._task(entry["metadata"])
        scorer = _scorer(task)
        # The puzzles of some tasks have no fixed answer, and their scorers compare with none.
        if entry["answer"] is None and not _takes_expected(scorer, entry):
            return None
        answer = self.extract(text)
        if answer is not None and not _may_see(task, answer.strip(), entry):
            return _of_none(scorer, entry)
        try:
            value = float(scorer(answer, entry))
        except MemoryError:
            raise
        # A library's scorer may fail in any way on what a policy writes.
        except Exception as error:
            if answer is not None and not _takes_expected(scorer, entry):
                raise
            return Noted(_of_none(scorer, entry), "scorer_failed", excerpt(f"{type(error).__name__}: {error}", 200))
        return (
            value
            if math.isfinite(value)
            else Noted(_of_none(scorer, entry), "scorer_failed", f"the scorer of {task!r} gave {value}")
        )


def _may_see(task: str, answer: str, entry: Mapping[str, Any]) -> bool:
    expected = [entry["answer"], *(entry["metadata"].get("valid_answers") or ())]
    return answer in (str(text).strip() for text in expected) or _HARMLESS.get(task, lambda _: True)(answer)


def _of_none(scorer: Scorer, entry: dict[str, Any]) -> float:
    """Returns the score of a missing answer; 0 where the scorer raises without an answer."""
    try:
        return float(scorer(None, entry))
    except Exception:
        return 0.0


def _takes_expected(scorer: Scorer, entry: dict[str, Any]) -> bool:
    """Returns whether the scorer accepts the expected answer. If it does, an error on another answer is due to that
    answer, not to the data.
    """
    try:
        scorer(str(entry["answer"]), entry)
    except Exception:
        return False
    return True
