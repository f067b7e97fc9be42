"""Grammars of the texts that may reach a scorer of reasoning-gym that evaluates them: answers, and the data that
answers are compared with.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, final

from groupwise.reward.texts.expression import Expression, RefusedText
from groupwise.reward.texts.nested_list import Nested

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
        groupwise.reward.texts.expression.RefusedText: "__import__('os')" at character 0 is not allowed there
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
