"""Tasks of reasoning-gym, scored by the task's own rule."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Annotated, Any, Literal, cast, final

from pydantic import Field

from groupwise.config.errors import Mebibytes
from groupwise.reward.base import MemberLimits, Noted, Reward, RewardError, Value
from groupwise.reward.completions import Text, completion_text, excerpt, prompt_text
from groupwise.reward.texts.answers import Extract

# Expressions of numbers, names and functions, recognised by a parser that never evaluates them.

_SPACE = re.compile(r"[ \t\r\n]*+")
_NUMBER = re.compile(r"(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,2}(?!\d))?", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]++")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*+", re.ASCII)
_LETTER = re.compile(r"[A-Za-z]\d{0,2}", re.ASCII)
_EXPONENT = re.compile(r"\d{1,3}+(?:\.\d{0,4}+)?(?![\w.])", re.ASCII)
_MAX_DIGITS = 5000


class RefusedText(ValueError):
    """A text outside its grammar; the message names the place and the characters."""


@final
@dataclass(frozen=True)
class Expression:
    """Numbers, names, functions of one or two arguments, brackets and operators, and nothing else of Python.

    A power has a whole number or a simple fraction above it, or anything over the base `E`; the digits that all powers
    and products could come to are bounded.

    Args:
        operators: of `+ - * / **  << >> & | ^`.
        names: words that stand for something, next to single letters where `letters` says so.
        functions: words that may stand before brackets.
        letters: whether every single letter is a name, alone or with a number after it.
        integers: whether numbers are decimal whole numbers only.
        hexadecimal: whether `0x1f` is a number.
        max_length: largest number of characters of a text.
        max_depth: brackets, signs, functions and powers inside each other.
        max_digits: largest number of digits of one number.

    Example:
        >>> Expression(frozenset("+-*/")).check("(19 - 9) * 3")
        >>> Expression(frozenset("+-*/")).check("9**9")
        Traceback (most recent call last):
        ...
        groupwise.reward.texts.reasoning_gym.RefusedText: '*9' at character 2 is not allowed there
    """

    operators: Collection[str]
    names: Collection[str] = frozenset()
    functions: Collection[str] = frozenset()
    letters: bool = False
    integers: bool = False
    hexadecimal: bool = False
    max_length: int = 2000
    max_depth: int = 40
    max_digits: int = 30

    def check(self, text: str, *names: str) -> None:
        """Refuses a text that is no such expression.

        Args:
            names: further names of this one, such as the variable of its puzzle.

        Raises:
            RefusedText: says where and what.
        """
        if len(text) > self.max_length:
            raise RefusedText(f"{len(text)} characters; at most {self.max_length} are read")
        _Reader(self, text, names).read_all()


@final
class _Reader:
    """One text, read once from left to right. Every rule returns how many digits its value could have."""

    def __init__(self, grammar: Expression, text: str, names: Collection[str]) -> None:
        self.grammar, self.text, self.place, self.depth = grammar, text, 0, 0
        self.names = {*grammar.names, *names}
        # The longest operators come first, so that `**` is not read as two `*`.
        self.binary = sorted((operator for operator in grammar.operators if operator != "**"), key=len, reverse=True)
        self._space()

    def read_all(self) -> None:
        self._sum()
        if self.place < len(self.text):
            raise self._refused()

    def _sum(self) -> int:
        self._deeper()
        digits = self._signed()
        while operator := next(
            (candidate for candidate in self.binary if self.text.startswith(candidate, self.place)), ""
        ):
            self._take(len(operator))
            digits = self._bounded(digits + self._signed())
        self.depth -= 1
        return digits

    def _signed(self) -> int:
        self._signs("+-")
        start = self.place
        digits = self._atom()
        if "**" in self.grammar.operators and self.text.startswith("**", self.place):
            base = self.text[start : self.place].strip()
            self._take(2)
            digits = self._bounded(digits * self._exponent() if base != "E" else self._power_of_e())
        return digits

    def _exponent(self) -> int:
        """Reads a whole number or fraction, signed or in brackets, and returns its size."""
        brackets = self._signs("(+-")
        exponent = self._whole_number()
        if brackets and self.text[self.place : self.place + 1] == "/":
            self._take(1)
            self._whole_number()
        for _ in range(brackets):
            self._expect(")")
        if self.text.startswith("**", self.place):
            raise self._refused()
        return max(exponent, 1)

    def _power_of_e(self) -> int:
        self._deeper()
        digits = self._signed()
        self.depth -= 1
        return digits

    def _signs(self, marks: str) -> int:
        """Reads signs (and brackets) before a number. Returns the number of brackets."""
        brackets = length = 0
        while (mark := self.text[self.place : self.place + 1]) and mark in marks:
            brackets, length = brackets + (mark == "("), length + 1
            if length > self.grammar.max_depth:
                raise self._too_deep()
            self._take(1)
        return brackets

    def _whole_number(self) -> int:
        match = _EXPONENT.match(self.text, self.place)
        if match is None:
            raise self._refused()
        self._take(len(match[0]))
        return math.ceil(float(match[0]))

    def _atom(self) -> int:
        if self.text.startswith("(", self.place):
            self._take(1)
            digits = self._sum()
            self._expect(")")
            return digits
        if match := _HEXADECIMAL.match(self.text, self.place) if self.grammar.hexadecimal else None:
            return self._number(match[0], 0)
        if match := _NUMBER.match(self.text, self.place):
            if self.grammar.integers and not match[0].isdigit():
                raise self._refused()
            exponent = re.split("[eE]", match[0])[1:]
            return self._number(match[0], abs(int(exponent[0])) if exponent else 0)
        match = _NAME.match(self.text, self.place)
        if match is None:
            raise self._refused()
        if self.text.startswith("(", match.end()) and match[0] in self.grammar.functions:
            self._take(len(match[0]) + 1)
            digits = self._sum()
            if self.text.startswith(",", self.place):
                self._take(1)
                digits = self._bounded(digits + self._sum())
            self._expect(")")
            return digits
        if match[0] not in self.names and not (self.grammar.letters and _LETTER.fullmatch(match[0])):
            raise self._refused()
        self._take(len(match[0]))
        return 1

    def _number(self, number: str, exponent: int) -> int:
        if len(number) > self.grammar.max_digits:
            raise RefusedText(f"a number of {len(number)} digits; at most {self.grammar.max_digits} are read")
        self._take(len(number))
        return len(number) + exponent

    def _bounded(self, digits: int) -> int:
        if digits > _MAX_DIGITS:
            raise RefusedText(f"its value could have {digits} digits; at most {_MAX_DIGITS} are computed")
        return digits

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > self.grammar.max_depth:
            raise self._too_deep()

    def _too_deep(self) -> RefusedText:
        return RefusedText(f"more than {self.grammar.max_depth} brackets, signs and powers inside each other")

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.place):
            raise self._refused()
        self._take(1)

    def _take(self, length: int) -> None:
        self.place += length
        self._space()

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.place)
        assert match is not None
        self.place = match.end()

    def _refused(self) -> RefusedText:
        remainder = self.text[self.place : self.place + 20]
        return RefusedText(
            f"{remainder!r} at character {self.place} is not allowed there" if remainder else "it ends too early"
        )


# No backslash and no quote within: nothing is escaped, and no two strings touch.
_STRING = re.compile(r"'[^'\"\\\x00-\x1f\x7f]*+'|\"[^'\"\\\x00-\x1f\x7f]*+\"")
_ITEM = re.compile(rf"[-+]?\d{{1,30}}+(?:\.\d{{0,30}}+)?(?![\w.])|{_STRING.pattern}", re.ASCII)


@final
@dataclass(frozen=True)
class Nested:
    """Lists (or tuples) of whole and decimal numbers and of plain words in quotes, inside each other.

    Args:
        max_length: largest number of characters of a text.
        max_depth: largest number of brackets inside each other.

    Example:
        >>> Nested().check("[[0, 1], ['Q', \\"_\\"]]")
        >>> Nested().check("[open('x')]")
        Traceback (most recent call last):
        ...
        groupwise.reward.texts.reasoning_gym.RefusedText: "open('x')]" at character 1 is not allowed there
    """

    max_length: int = 20_000
    max_depth: int = 4

    def check(self, text: str, *names: str) -> None:
        """Refuses a text that is no such list.

        Args:
            names: no use is made of them.

        Raises:
            RefusedText: says where and what.
        """
        if len(text) > self.max_length:
            raise RefusedText(f"{len(text)} characters; at most {self.max_length} are read")
        place, closing, value = 0, [], True
        while place < len(text):
            mark = text[place]
            if mark in " \t\r\n":
                place += 1
            elif mark in "[(" and value and len(closing) < self.max_depth:
                closing.append("]" if mark == "[" else ")")
                place += 1
            elif closing and mark == closing[-1]:
                closing.pop()
                value, place = False, place + 1
            elif mark == "," and closing and not value:
                value, place = True, place + 1
            elif value and closing and (match := _ITEM.match(text, place)):
                value, place = False, match.end()
            else:
                raise RefusedText(f"{text[place : place + 20]!r} at character {place} is not allowed there")
        if closing or value:
            raise RefusedText("it ends too early")


# Grammars of the texts that may reach a scorer of reasoning-gym that evaluates them: answers, and the data that
# answers are compared with.

_EVALUATORS = frozenset({"eval", "exec", "__import__", "parse_expr", "sympify", "lambdify"})


@final
@dataclass(frozen=True)
class Rule:
    """The texts that the scorer of a task may receive.

    Args:
        answer: the grammar of an answer; None where the scorer evaluates no answer.
        references: fields of the entry that the scorer evaluates -> their grammar.
        refused: a regular expression of answers that are wrong whatever the scorer says.
    """

    answer: Expression | Nested | None = None
    references: Mapping[str, Expression | Nested] | None = None
    refused: str | None = None


_FUNCTIONS = (
    "sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh asinh acosh atanh exp log ln sqrt Abs erf Ei"
    " Si Ci li Integral"
)
ARITHMETIC = Expression(frozenset("+-*/"), integers=True)
"""The grammar of answers to Countdown and 24."""
BITWISE = Expression({"+", "-", "*", "<<", ">>", "&", "|", "^"}, hexadecimal=True)
"""The grammar of the problems of bitwise arithmetic."""
SYMBOLIC = Expression({"+", "-", "*", "/", "**"}, names={"pi"}, functions=frozenset(_FUNCTIONS.split()), letters=True)
"""The grammar of integrals and polynomials."""
_INTEGRAL = Rule(SYMBOLIC, {"metadata.integrand": SYMBOLIC, "metadata.variable": SYMBOLIC})
RULES: Mapping[str, Rule] = {
    "countdown": Rule(ARITHMETIC),
    "puzzle24": Rule(ARITHMETIC),
    "simple_integration": _INTEGRAL,
    "intermediate_integration": _INTEGRAL,
    "polynomial_multiplication": Rule(SYMBOLIC, {"answer": SYMBOLIC}),
    "binary_matrix": Rule(Nested()),
    "spiral_matrix": Rule(Nested()),
    "string_insertion": Rule(Nested()),
    "n_queens": Rule(Nested()),
    "bitwise_arithmetic": Rule(references={"metadata.problem": BITWISE}),
    "number_sorting": Rule(references={"answer": Nested()}),
    # The scorer treats a distance of nan like a distance of 0, so that such an answer would count as right.
    "complex_arithmetic": Rule(refused="(?i)nan|inf"),
}
"""Tasks whose scorer evaluates text, and the texts that it may receive."""


def check_reference(task: str, entry: Mapping[str, Any]) -> None:
    """Refuses a data entry whose evaluated fields hold a text that the task itself would not write.

    Args:
        entry: `question`, `answer` and `metadata`.

    Raises:
        ValueError: names the field and what stands there.

    Example:
        >>> check_reference("bitwise_arithmetic", {"metadata": {"problem": "(0x1f + 0x2)"}})
    """
    for field, grammar in (RULES.get(task, Rule()).references or {}).items():
        value: Any = entry
        for part in field.split("."):
            value = value[part]
        try:
            grammar.check(str(value), *_variables(entry))
        except RefusedText as error:
            raise ValueError(
                f"{field} of an entry of {task!r} is none that the task writes: {error}; reasoning-gym would"
                " evaluate it"
            ) from error


def check_answer(task: str, scorer: Callable[..., Any], answer: str, entry: Mapping[str, Any]) -> None:
    """Refuses an answer that the scorer would evaluate and that is outside the task's grammar. An answer equal to the
    expected text is allowed.

    Args:
        scorer: its function; where it evaluates and no grammar is stated, every answer is refused.
        answer: text of the policy.
        entry: `question`, `answer` and `metadata`.

    Raises:
        RefusedText: says where and what.

    Example:
        >>> check_answer("countdown", print, "__import__('os')", {})
        Traceback (most recent call last):
        ...
        groupwise.reward.texts.reasoning_gym.RefusedText: "__import__('os')" at character 0 is not allowed there
    """
    rule = RULES.get(task, Rule())
    if rule.refused is not None and re.search(rule.refused, answer):
        raise RefusedText(f"answers to {task!r} are finite numbers")
    if rule.answer is not None:
        # These scorers compare before they evaluate.
        if isinstance(rule.answer, Nested) and answer.strip() in _expected(entry):
            return
        rule.answer.check(answer, *_variables(entry))
    elif rule.references is None and evaluates(scorer):
        raise RefusedText(f"reasoning-gym evaluates answers to {task!r}, and no grammar is stated for it")


def _expected(entry: Mapping[str, Any]) -> list[str]:
    return [str(entry["answer"]).strip(), *map(str, (entry["metadata"] or {}).get("valid_answers", ()))]


def _variables(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the variable names of a puzzle, without those that are no plain names."""
    metadata = entry.get("metadata") or {}
    names = [metadata.get("variable"), *(metadata.get("variables") or ())]
    return tuple(
        name for name in names if isinstance(name, str) and re.fullmatch("[A-Za-z][A-Za-z0-9]{0,15}", name, re.ASCII)
    )


_EVALUATES: dict[Any, bool] = {}


def evaluates(scorer: Callable[..., Any]) -> bool:
    """Returns True where a scorer, or a function of its library that it calls, names a function that evaluates text.

    Example:
        >>> from reasoning_gym.factory import get_score_answer_fn
        >>> [evaluates(get_score_answer_fn(task)) for task in ("countdown", "gcd", "jugs")]
        [True, False, False]
    """
    function = getattr(scorer, "__func__", None)
    if not isinstance(function, FunctionType):
        return True
    if function not in _EVALUATES:
        _EVALUATES[function] = any(
            _names_evaluator(reached_function) for reached_function in _reached(function, type(scorer.__self__))
        )  # type: ignore[attr-defined]
    return _EVALUATES[function]


def _names_evaluator(function: FunctionType) -> bool:
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    # Propositional logic has a parse_expr of its own, which evaluates nothing.
    return any(not _is_own(function.__globals__.get(name)) for name in names & _EVALUATORS)


def _reached(function: FunctionType, owner: type) -> Iterator[FunctionType]:
    waiting, seen = [function], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        for name in (name for code in _codes(current.__code__) for name in code.co_names):
            for target in (current.__globals__.get(name), inspect.getattr_static(owner, name, None)):
                target = getattr(target, "__func__", target)
                if isinstance(target, FunctionType) and _is_own(target):
                    waiting.append(target)
                elif isinstance(target, type) and _is_own(target):
                    members = (getattr(member, "__func__", member) for member in vars(target).values())
                    waiting += [member for member in members if isinstance(member, FunctionType)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_own(target: Any) -> bool:
    return str(getattr(target, "__module__", "")).partition(".")[0] == "reasoning_gym"


Scorer = Callable[[str | None, dict[str, Any]], float]


@cache
def _scorer(task: str) -> Scorer:
    from reasoning_gym.factory import get_score_answer_fn

    # The library annotates this function without its parameters.
    return cast(Any, get_score_answer_fn(task))


@final
class ReasoningGym(Reward):
    """`score_answer(answer, entry)` of the task, usually in [0, 1].

    The entry is put together from the columns `question` (or the prompt, where there is none), `answer` and `metadata`,
    as reasoning-gym makes them.

    Some of the library's scorers evaluate an answer as Python. Before they see one it is read by a grammar
    (`groupwise.reward.texts.reasoning_gym`): what is not in it earns what no answer at all earns. Members are scored
    one
    by one in a process that is killed when one takes too long or too much memory; that member is wrong, and counted as
    `answer_too_slow` or `answer_too_large`. A scorer that raises on an answer, and not on the expected one, makes it
    wrong, counted as `scorer_failed`. Called directly, and not by `score` or `Rewards`, it runs in this process and
    without these limits.

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
        # Puzzles of some tasks have no answer of their own: their scorers compare with none.
        if entry["answer"] is None and not _takes_expected(scorer, entry):
            return None
        check_reference(task, entry)
        answer = self.extract(text)
        if answer is not None:
            try:
                check_answer(task, scorer, answer, entry)
            except RefusedText as error:
                stated = task in RULES or not evaluates(scorer)
                return (
                    _of_none(scorer, entry) if stated else Noted(_of_none(scorer, entry), "answer_refused", str(error))
                )
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


def _of_none(scorer: Scorer, entry: dict[str, Any]) -> float:
    """Returns the score of a missing answer; 0 where the scorer raises without an answer."""
    try:
        return float(scorer(None, entry))
    except Exception:
        return 0.0


def _takes_expected(scorer: Scorer, entry: dict[str, Any]) -> bool:
    """Returns True where the scorer accepts the expected answer: an error on another answer is then due to that answer,
    not to the data.
    """
    try:
        scorer(str(entry["answer"]), entry)
    except Exception:
        return False
    return True
