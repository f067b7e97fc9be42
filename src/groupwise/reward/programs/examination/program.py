"""The process of the program: runs it and does what the test asks of it. Nothing here is secret, and nothing that it
says is trusted.
"""

from __future__ import annotations

import builtins
import io
import math
import operator
import sys
from types import CoroutineType, ModuleType

from .plain import ARITHMETIC, COMPARISONS, Line, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BASES = (int, float, str, bytes, complex, tuple, frozenset)
"""Kinds whose values never change: what is derived from one goes as a value of it, with what else it has behind."""
_CHANGING = (list, dict, set, bytearray)
_BARE: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    frozenset: frozenset,
    list: list.copy,
    dict: dict.copy,
    set: set,
    bytearray: bytearray.copy,
}
_OPERATORS = (*COMPARISONS, *ARITHMETIC, "neg", "pos", "invert", "index", "contains", "getitem", "setitem", "delitem")
_CONVERSIONS = (
    "len",
    "iter",
    "next",
    "bool",
    "int",
    "float",
    "complex",
    "abs",
    "round",
    "str",
    "repr",
    "format",
    "hash",
    "reversed",
)
_FUNCTIONS = (*_CONVERSIONS, "getattr", "setattr", "delattr", "isinstance", "issubclass")
_END = object()


def bare(value: Any, kinds: tuple[type, ...]) -> Any:
    """The value of a built-in kind that an object derived from one holds; `None` where it is derived from none.

    Args:
        value: any object.
        kinds: built-in kinds.

    Example:
        >>> class Always(int):
        ...     def __eq__(self, other):
        ...         return True
        ...
        ...     __hash__ = None
        >>> bare(Always(3), _BASES) == 4, bare(object(), _BASES)
        (False, None)
    """
    for kind in kinds:
        if isinstance(value, kind):
            return _BARE[kind](value)
    return None


class Program:
    """The program's names, and its objects that the test holds by number.

    Args:
        number: of the socket to the test.
    """

    def __init__(self, number: int) -> None:
        self._line = Line(number, self.answer)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._said = io.StringIO()
        self._space: dict[str, Any] = {"__name__": "solution"}
        self._acts: dict[str, Callable[..., Any]] = {
            **{name: getattr(operator, name) for name in _OPERATORS},
            **{name: getattr(builtins, name) for name in _FUNCTIONS},
            **{name: getattr(math, name) for name in ("floor", "ceil", "trunc")},
            "name": lambda name: self._space[name],
            "call": lambda call, given, named: call(*given, **named),
            "enter": lambda held: type(held).__enter__(held),
            "exit": lambda held, *why: type(held).__exit__(held, *why),
            "bare": lambda held: bare(held, _CHANGING),
            "run": _run,
        }

    def run(self, path: str) -> None:
        """Runs the program, then does what is asked.

        Args:
            path: of its text.
        """
        sys.stdout = self._said
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), self._space)
        self._line.serve()

    def answer(self, question: list[Any]) -> Any:
        """What the test is told: a value or what was raised, which arguments changed, and what was printed.

        Args:
            question: what to do and with what.
        """
        act, *given = question
        if act == "names":
            return [name for name in self._space if not (name.startswith("__") or hasattr(builtins, name))]
        inputs = [decode(each, self._known) for each in given]
        try:
            told: dict[str, Any] = {"value": self._told(self._acts[act](*inputs))}
        except BaseException as error:
            told = {"raised": self._raised(error)}
        if act == "call":
            # What was given by value and has changed goes back, at its place.
            told["changed"] = [
                [place, after]
                for place, before in enumerate(given[1:3])
                if (after := self._told(inputs[1:3][place])) != before
            ]
        told["printed"] = self._said.getvalue()
        self._said.seek(0)
        self._said.truncate()
        return told

    def _told(self, value: Any) -> Any:
        return encode(value, self._other)

    def _other(self, value: Any) -> list[Any]:
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", [self._number(value), value.__name__, [self._told(base) for base in value.__bases__]]]
        if isinstance(value, CoroutineType):
            return ["coroutine", self._number(value)]
        plain = bare(value, _BASES)
        if plain is not None:
            return ["derived", [self._number(value), self._told(plain)]]
        return ["object", [self._number(value), callable(value)]]

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def _known(self, tag: str, content: Any) -> Any:
        if tag == "object":
            return self._objects[content]
        if tag == "function":
            return lambda *given, **named: self._asked("call", content, given, named)
        if tag == "iterator":
            return iter(lambda: self._asked("next", content), _END)
        raise ValueError(f"unknown: {tag}")

    def _asked(self, act: str, number: int, given: tuple[Any, ...] = (), named: dict[str, Any] | None = None) -> Any:
        told = self._line.ask(act, number, self._told(given), self._told(named or {}))
        if "end" in told:
            return _END
        if "raised" in told:
            raise getattr(builtins, told["raised"][0], Exception)(told["raised"][1])
        return decode(told["value"], self._known)

    def _raised(self, error: BaseException) -> list[Any]:
        try:
            return [self._told(type(error)), self._told(tuple(error.args)), self._number(error), str(error)]
        except Exception:
            return [["builtin", "Exception"], ["tuple", []], self._number(error), "an error that cannot be told"]


def _run(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def program(number: int) -> None:
    """Runs `solution.py` and does what the test asks.

    Args:
        number: of the open socket to the test.
    """
    Program(number).run("solution.py")
