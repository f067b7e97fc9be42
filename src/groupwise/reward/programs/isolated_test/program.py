"""The process of the program: runs the program and executes the test's requests. It holds no secret, and its answers
are not trusted.
"""

from __future__ import annotations

import builtins
import io
import math
import operator
import sys
from types import CoroutineType, ModuleType

from .plain_data import BETWEEN_TWO, FUNCTIONS, OPERATORS, ROUNDINGS, Line, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BASES = (int, float, str, bytes, complex, tuple, frozenset)
"""Classes whose values never change. An object of a class that is derived from one is sent as such a value, together
with its other data.
"""
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
_OWN_FUNCTIONS = ("bool", "getattr", "setattr", "delattr", "isinstance", "issubclass")
_END = object()


def bare(value: Any, kinds: tuple[type, ...]) -> Any:
    """Returns the built-in value of an object whose class is derived from a built-in class; `None` where it is derived
    from none of them.

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
    """The program's names, and the objects of the program that the test refers to by number.

    Args:
        number: of the socket to the test.
    """

    def __init__(self, number: int) -> None:
        self._line = Line(number, self.answer)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._printed = io.StringIO()
        self._space: dict[str, Any] = {"__name__": "solution"}
        self._acts: dict[str, Callable[..., Any]] = {
            **{name: getattr(operator, name) for name in (*BETWEEN_TWO, *OPERATORS, "contains")},
            **{name: getattr(builtins, name) for name in (*FUNCTIONS, *_OWN_FUNCTIONS)},
            **{name: getattr(math, name) for name in ROUNDINGS},
            "name": lambda name: self._space[name],
            "call": lambda call, arguments, keywords: call(*arguments, **keywords),
            "enter": lambda manager: type(manager).__enter__(manager),
            "exit": lambda manager, *why: type(manager).__exit__(manager, *why),
            "bare": lambda manager: bare(manager, _CHANGING),
            "run": _run,
        }

    def run(self, path: str) -> None:
        """Runs the program, then executes requests until the line is closed."""
        sys.stdout = self._printed
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), self._space)
        self._line.serve()

    def answer(self, question: list[Any]) -> Any:
        """Executes one request of the test. Returns the value or the exception, the arguments that changed, and the
        printed text.

        Args:
            question: what to do and with what.
        """
        act, *arguments = question
        if act == "names":
            return [name for name in self._space if not (name.startswith("__") or hasattr(builtins, name))]
        inputs = [decode(argument, self._decode_other) for argument in arguments]
        try:
            reply: dict[str, Any] = {"value": self._encode(self._acts[act](*inputs))}
        except BaseException as error:
            reply = {"raised": self._raised(error)}
        if act == "call":
            # Arguments are passed by value. Those that the call changed are sent back with their position.
            reply["changed"] = [
                [place, after]
                for place, before in enumerate(arguments[1:3])
                if (after := self._encode(inputs[1:3][place])) != before
            ]
        reply["printed"] = self._printed.getvalue()
        self._printed.seek(0)
        self._printed.truncate()
        return reply

    def _encode(self, value: Any) -> Any:
        return encode(value, self._encode_other)

    def _encode_other(self, value: Any) -> list[Any]:
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, type) and issubclass(value, BaseException):
            return [
                "exception",
                [self._number(value), value.__name__, [self._encode(base) for base in value.__bases__]],
            ]
        if isinstance(value, CoroutineType):
            return ["coroutine", self._number(value)]
        plain = bare(value, _BASES)
        if plain is not None:
            return ["derived", [self._number(value), self._encode(plain)]]
        return ["object", [self._number(value), callable(value)]]

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def _decode_other(self, tag: str, content: Any) -> Any:
        if tag == "object":
            return self._objects[content]
        if tag == "function":
            return lambda *arguments, **keywords: self._ask("call", content, arguments, keywords)
        if tag == "iterator":
            return iter(lambda: self._ask("next", content), _END)
        raise ValueError(f"unknown: {tag}")

    def _ask(
        self, act: str, number: int, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        reply = self._line.ask(act, number, self._encode(arguments), self._encode(keywords or {}))
        if "end" in reply:
            return _END
        if "raised" in reply:
            raise getattr(builtins, reply["raised"][0], Exception)(reply["raised"][1])
        return decode(reply["value"], self._decode_other)

    def _raised(self, error: BaseException) -> list[Any]:
        try:
            return [self._encode(type(error)), self._encode(tuple(error.args)), self._number(error), str(error)]
        except Exception:
            return [["builtin", "Exception"], ["tuple", []], self._number(error), "an error that cannot be told"]


def _run(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def program(number: int) -> None:
    """Runs `solution.py` and executes the test's requests.

    Args:
        number: of the open socket to the test.
    """
    Program(number).run("solution.py")
