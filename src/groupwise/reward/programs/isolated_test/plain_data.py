"""Plain data as lines of JSON, which two processes exchange, one of them untrusted. No data is unpickled and none is
evaluated.
"""

from __future__ import annotations

import builtins
import json
import sys
from types import BuiltinFunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Two of these processes start for every test, so slow imports are left out or made where they are needed.
    from collections.abc import Callable
    from typing import Any

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
BITWISE = ("and_", "or_", "xor", "lshift", "rshift")
BETWEEN_TWO = (*COMPARISONS, *ARITHMETIC, *BITWISE)
"""Operators of two objects, under their names in the module `operator`. For two objects of the program, the program
evaluates them.
"""
OPERATORS = ("neg", "pos", "invert", "index", "getitem", "setitem", "delitem")
FUNCTIONS = (
    "len",
    "iter",
    "next",
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
ROUNDINGS = ("floor", "ceil", "trunc")
"""Operations on one object, of the modules `operator`, `builtins` and `math`."""

_NUMBER = 2**63
"""Larger integers are sent in base 16: JSON's own are slow, and refused beyond 4,300 digits."""
_SEQUENCES = dict.fromkeys(("list", "tuple", "set", "frozenset"), "builtins") | {"deque": "collections"}
_MAPPINGS = {"dict": "builtins"} | dict.fromkeys(("Counter", "OrderedDict", "defaultdict"), "collections")
# name -> module, constructor ("" for the class itself), and the arguments that it takes.
_WRITTEN: dict[str, tuple[str, str, Callable[[Any], list[Any]]]] = {
    "int": ("builtins", "", lambda value: [hex(value), 16]),
    "bytes": ("builtins", "fromhex", lambda value: [value.hex()]),
    "bytearray": ("builtins", "fromhex", lambda value: [value.hex()]),
    "complex": ("builtins", "", lambda value: [value.real, value.imag]),
    "range": ("builtins", "", lambda value: [value.start, value.stop, value.step]),
    "Decimal": ("decimal", "", lambda value: [str(value)]),
    "Fraction": ("fractions", "", lambda value: [str(value)]),
    "datetime": ("datetime", "fromisoformat", lambda value: [value.isoformat()]),
    "date": ("datetime", "fromisoformat", lambda value: [value.isoformat()]),
    "time": ("datetime", "fromisoformat", lambda value: [value.isoformat()]),
    "timedelta": ("datetime", "", lambda value: [value.days, value.seconds, value.microseconds]),
}
_ARRAY_KINDS = "?biufcSU"


def _is(kind: type, module: str | None) -> bool:
    """Returns whether a class is the class of its name in a module; False where the module has not been imported."""
    return module is not None and getattr(sys.modules.get(module), kind.__name__, None) is kind


def _kind(module: str, name: str) -> Any:
    return getattr(__import__(module), name)


def encode(value: Any, fallback: Callable[[Any], list[Any]]) -> Any:
    """Encodes a value as JSON.

    Args:
        value: of exactly a built-in kind (or a date, a decimal, a numpy array, ...), or a container of such.
        fallback: encodes every other value, as a tag of its own and the content of that tag.

    Example:
        >>> encode([1, ("a", None)], fallback=repr)
        ['list', [1, ['tuple', ['a', None]]]]
    """
    kind = type(value)
    if value is None or kind in (bool, float, str) or (kind is int and -_NUMBER < value < _NUMBER):
        return value
    name = kind.__name__
    if kind is list and _is_json(value):
        return [name, value.copy()]
    if _is(kind, _SEQUENCES.get(name)):
        return [name, [encode(element, fallback) for element in value]]
    if _is(kind, _MAPPINGS.get(name)):
        return [name, [[encode(key, fallback), encode(element, fallback)] for key, element in value.items()]]
    if name in _WRITTEN and _is(kind, _WRITTEN[name][0]):
        return [name, _WRITTEN[name][2](value)]
    if kind in (type, BuiltinFunctionType) and getattr(builtins, value.__name__, None) is value:
        return ["builtin", value.__name__]
    numpy = sys.modules.get("numpy")
    if numpy is not None and (
        kind is numpy.ndarray
        or (isinstance(value, numpy.generic) and not isinstance(value, float | complex | str | bytes))
    ):
        array = numpy.asarray(value)
        if array.dtype.kind in _ARRAY_KINDS:
            return ["array", [array.dtype.str, list(array.shape), array.tobytes().hex(), kind is numpy.ndarray]]
    return fallback(value)


def _is_json(values: list[Any]) -> bool:
    """Returns whether JSON can hold all elements without a conversion. The test runs without a Python loop over the
    elements, because lists of a million elements are common.
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        return min(values) > -_NUMBER and max(values) < _NUMBER
    return kinds <= {bool, float, str, type(None)}


def decode(content: Any, fallback: Callable[[str, Any], Any]) -> Any:
    """Decodes a value from JSON; the value is exactly of a built-in class.

    Args:
        content: the output of `encode`, or any JSON that an untrusted process sent.
        fallback: decodes a tag that is none of these, from tag and content; raises for a tag that it does not know.

    Example:
        >>> decode(["list", [1, ["tuple", ["a", None]]]], fallback=print)
        [1, ('a', None)]
    """
    if not isinstance(content, list):
        return content
    name, inner = content
    if name == "list" and list not in set(map(type, inner)):
        return inner.copy()
    if name in _SEQUENCES:
        return _kind(_SEQUENCES[name], name)(decode(element, fallback) for element in inner)
    if name in _MAPPINGS:
        items = {decode(key, fallback): decode(element, fallback) for key, element in inner}
        return _kind(_MAPPINGS[name], name)(*([None] if name == "defaultdict" else []), items)
    if name in _WRITTEN:
        module, constructor, _ = _WRITTEN[name]
        kind = _kind(module, name)
        return (getattr(kind, constructor) if constructor else kind)(*inner)
    if name == "builtin" and not inner.startswith("_"):
        return getattr(builtins, inner)
    if name == "array":
        import numpy

        kind, shape, data, is_array = inner
        if numpy.dtype(kind).kind not in _ARRAY_KINDS:
            raise ValueError(f"no plain array: {kind}")
        array = numpy.frombuffer(bytes.fromhex(data), dtype=kind).reshape(shape).copy()
        return array if is_array else array[()]
    return fallback(name, inner)


class Line:
    """The line to the second process. A process that asks waits for the answer, and answers incoming questions
    meanwhile.

    Args:
        answer: returns the answer to a question.
    """

    def __init__(self, number: int, answer: Callable[[list[Any]], Any]) -> None:
        # Both files stay open for as long as the process lives.
        self._writer = open(number, "w", encoding="ascii", closefd=False)  # noqa: SIM115
        self._reader = open(number, encoding="ascii")  # noqa: SIM115
        self._answer = answer

    def ask(self, *question: Any) -> Any:
        """Sends a question and returns the answer of the second process.

        Raises:
            EOFError: it has ended.
        """
        self._send("ask", question)
        while (message := self._receive())[0] == "ask":
            self._send("answer", self._answer(message[1]))
        return message[1]

    def serve(self) -> None:
        """Answers questions until the line is closed."""
        try:
            while True:
                self._send("answer", self._answer(self._receive()[1]))
        except (EOFError, OSError):
            return

    def _send(self, kind: str, content: Any) -> None:
        self._writer.write(json.dumps([kind, content]) + "\n")
        self._writer.flush()

    def _receive(self) -> list[Any]:
        text = self._reader.readline()
        if not text:
            raise EOFError("the other process has ended")
        return json.loads(text)
