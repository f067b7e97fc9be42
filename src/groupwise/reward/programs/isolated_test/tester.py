"""The process of the test: runs the test, and ends with status 0 where the test raised no exception. No code of the
program runs here.

The program's functions and classes are stand-ins. Arguments and results go over as plain data; what is not plain data
stays with the program and is called, read and compared there.
"""

from __future__ import annotations

import builtins
import operator
import sys
from types import ModuleType

from .plain_data import BETWEEN_TWO, FUNCTIONS, OPERATORS, ROUNDINGS, Line, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# How far the test trusts the class of one of the program's objects to answer for it. The program must not decide this,
# since it can turn any function into a class. So the test decides: a capitalised name that it calls is a class.
_FOUND, _RELATED, _MADE = range(3)
_GENERATOR_METHODS = ("send", "throw", "close", "asend", "athrow", "aclose")
_CHANGES = set(dir(list)) - set(dir(tuple)) | set(dir(set)) - set(dir(frozenset)) | {"copy"}
_ANSWERS = {name for kind in (str, bytes, list, dict, set, int, float) for name in dir(kind)} - _CHANGES | {
    "all",
    "any",
}
_VIEWS = tuple(type(getattr({}, part)()) for part in ("keys", "values", "items"))


class Remote:
    """An object of the program. It is never equal to plain data and takes no part in arithmetic with plain data: the
    program's own operators are called only between two of the program's objects. Truth and membership are the
    program's for an object that the test made from a class; any other has no truth, and holds what it iterates over.

    Args:
        number: by which the program knows it.
        trust: `_MADE` by the test, from a class of the program; `_RELATED`, given by such an object's method; `_FOUND`
            elsewhere, with data to read and no methods.
    """

    __slots__ = ("_number", "_tester", "_trust")

    def __init__(self, tester: Tester, number: int, trust: int = _FOUND) -> None:
        object.__setattr__(self, "_tester", tester)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_trust", trust)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return _attribute(self, name)

    def __bool__(self) -> bool:
        if self._trust < _MADE:
            raise TypeError("an object of the program that the test did not make has no truth")
        return bool(self._tester.ask("bool", self))

    def __contains__(self, value: Any) -> bool:
        if self._trust < _MADE:
            return any(value is element or value == element for element in self._tester.ask("iter", self))
        return bool(self._tester.ask("contains", self, value))

    def __setattr__(self, name: str, value: Any) -> None:
        self._tester.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._tester.ask("delattr", self, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote | _Derived) and bool(self._tester.ask("isinstance", value, self))

    def __subclasscheck__(self, kind: Any) -> bool:
        return isinstance(kind, Remote) and bool(self._tester.ask("issubclass", kind, self))


def _attribute(owner: Any, name: str) -> Any:
    """Reads an attribute. A method of an object that the test did not make could answer for the program, so it is
    returned as an object that cannot be called.
    """
    value = owner._tester.ask("getattr", owner, name)
    if not isinstance(value, RemoteCall):
        return value
    callable_here = owner._trust == _MADE or (owner._trust == _RELATED and name not in _ANSWERS)
    kind = RemoteCall if callable_here or name in _GENERATOR_METHODS else Remote
    # A new object is made, since the program may have returned the number of an object that the test trusts more.
    return kind(owner._tester, value._number, min(owner._trust, _RELATED))


class RemoteCall(Remote):
    """A function or a class of the program."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._tester.ask("call", self, arguments, keywords)


class _Derived:
    """The mixin of an object whose class is derived from a built-in class: its attributes are read in the program's
    process.
    """

    _tester: Tester
    _number: int
    _trust: int = _FOUND

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(self, name)


class _Raised:
    """The mixin of an exception of the program: its text, and its attributes, which the program's process reads."""

    _tester: Tester
    _number: int
    _trust: int = _FOUND
    _text: str

    def __str__(self) -> str:
        return self._text

    __getattr__ = _Derived.__getattr__


def _between_two(act: str) -> Callable[[Remote, Any], Any]:
    def between(self: Remote, operand: Any) -> Any:
        if isinstance(operand, Remote):
            return self._tester.ask(act, self, operand)
        # An object whose class is derived from list, dict or set is compared by its built-in value.
        plain = self._tester.ask("bare", self)
        return NotImplemented if plain is None else getattr(operator, act)(plain, operand)

    return between


def _passed_on(act: str) -> Callable[..., Any]:
    return lambda self, *arguments: self._tester.ask(act, self, *arguments)


for _name in BETWEEN_TWO:
    setattr(Remote, f"__{_name.strip('_')}__", _between_two(_name))
for _name in (*OPERATORS, *FUNCTIONS, *ROUNDINGS, "enter", "exit"):
    setattr(Remote, f"__{_name}__", _passed_on(_name))
Remote.__doc__ = property(lambda self: self._tester.ask("getattr", self, "__doc__"))  # pyright: ignore


class _Space(dict):  # pyright: ignore[reportMissingTypeArgument]
    """The names that a test can read: its own names, the program's current names, and Python's built-in names."""

    def __init__(self, tester: Tester, names: list[str]) -> None:
        # Otherwise code behind `if __name__ == "__main__":` would never run, and the test would pass whatever the
        # program does.
        super().__init__(__name__="__main__")
        self._tester, self.names = tester, frozenset(names) - frozenset(dir(builtins))

    def __missing__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return self._tester.ask("name", name)


class _Solution(ModuleType):
    """The program's names as a module, for tests that import it."""

    def __init__(self, space: _Space) -> None:
        super().__init__("solution")
        self.__space = space
        self.__all__ = [name for name in space.names if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__space.__missing__(name)
        except KeyError:
            raise AttributeError(f"the program has no {name!r}") from None


class Tester:
    """One test of one program.

    Args:
        number: of the socket to the program.
    """

    def __init__(self, number: int) -> None:
        self._line = Line(number, self.answer)
        self._objects: dict[int, Any] = {}
        self._lent: list[Any] = []
        self._kinds: dict[type, type] = {}

    def run(self, text: str) -> None:
        """Runs a test with the program's names; Python's built-in names keep their meaning.

        Raises:
            BaseException: what the test raises.
        """
        space = _Space(self, self._line.ask("names"))
        sys.modules["solution"] = _Solution(space)
        exec(compile(text, "test.py", "exec"), space)

    def ask(self, act: str, *arguments: Any) -> Any:
        """Asks the program's process to perform an operation on objects and plain data, and returns the result.

        Args:
            act: name of the operation.
            arguments: objects of the program and plain data.

        Raises:
            BaseException: what the program raised, of a built-in kind or of one derived from it.
        """
        reply = self._line.ask(act, *(encode(argument, self._encode_other) for argument in arguments))
        sys.stdout.write(str(reply["printed"]))
        for place, content in reply.get("changed", ()):
            _copy_changes(arguments[1 + place], self._decode(content))
        if "raised" in reply:
            raise self._error(*reply["raised"])
        trust = _FOUND
        if act == "name":
            trust = _MADE if arguments[0].lstrip("_")[:1].isupper() else _FOUND
        elif isinstance(arguments[0], Remote | _Derived):
            trust = arguments[0]._trust
        return self._decode(reply["value"], trust)

    def answer(self, question: list[Any]) -> Any:
        """Calls a function of the test on behalf of the program, or advances an iterator of the test, and returns the
        result.

        Args:
            question: whether to call or to go on with an iteration, the number of what was given, and the arguments.
        """
        act, number, arguments, keywords = question
        try:
            if act == "call":
                value = self._lent[number](*self._decode(arguments), **self._decode(keywords))
            else:
                value = next(self._lent[number])
        except StopIteration:
            return {"end": True}
        except Exception as error:
            return {"raised": [type(error).__name__, str(error)]}
        return {"value": encode(value, self._encode_other)}

    def _encode_other(self, value: Any) -> list[Any]:
        if isinstance(value, Remote | _Derived | _Raised):
            return ["object", object.__getattribute__(value, "_number")]
        if isinstance(value, type) and "_number" in value.__dict__:
            return ["object", value.__dict__["_number"]]
        if isinstance(value, _VIEWS):
            return encode(list(value), self._encode_other)  # pyright: ignore
        if callable(value) or hasattr(value, "__next__"):
            self._lent.append(value)
            return ["function" if callable(value) else "iterator", len(self._lent) - 1]
        raise TypeError(f"a test gives the program plain data and functions, and {type(value).__name__} is neither")

    def _decode(self, content: Any, trust: int = _FOUND) -> Any:
        return decode(content, lambda tag, inner: self._decode_other(tag, inner, trust))

    def _decode_other(self, tag: str, content: Any, trust: int) -> Any:
        if tag == "module":
            __import__(content)
            return sys.modules[content]
        number = content if tag == "coroutine" else int(content[0])
        value: Any
        if number in self._objects:
            value = self._objects[number]
            if isinstance(value, Remote) and value._trust < trust:
                object.__setattr__(value, "_trust", trust)
            return value
        if tag == "object":
            value = (RemoteCall if content[1] else Remote)(self, number, trust)
            # A list of a class that the program defines is treated as a list, unless that class is under test.
            if trust < _MADE and not isinstance(value, RemoteCall) and (plain := self.ask("bare", value)) is not None:
                return plain
        elif tag == "derived":
            plain = self._decode(content[1])
            kind = self._kinds.setdefault(type(plain), type(type(plain).__name__, (type(plain), _Derived), {}))
            value = kind(plain)
            value._tester, value._number, value._trust = self, number, trust
        elif tag == "exception":
            bases = tuple(self._decode(base) for base in content[2])
            value = type(
                content[1],
                bases if any(issubclass(base, _Raised) for base in bases) else (_Raised, *bases),
                {"_number": number},
            )
        elif tag == "coroutine":
            value = self._awaited(number)
        else:
            raise ValueError(f"unknown: {tag}")
        self._objects[number] = value
        return value

    async def _awaited(self, number: int) -> Any:
        return self.ask("run", Remote(self, number))

    def _error(self, kind: Any, arguments: Any, number: int, text: str) -> BaseException:
        error_class = self._decode(kind)
        assert issubclass(error_class, BaseException)
        try:
            error = error_class(*self._decode(arguments))
        except TypeError:
            error = error_class(text)
        if isinstance(error, _Raised):
            error._tester, error._number, error._text = self, number, text
        return error


def _copy_changes(arguments: Any, after: Any) -> None:
    """Copies the changes that the program made to its arguments in place to the test's arguments."""
    if isinstance(arguments, tuple):
        for old, new in zip(arguments, after, strict=True):
            _copy_change(old, new)
    else:
        for name, new in after.items():
            _copy_change(arguments[name], new)


def _copy_change(old: Any, new: Any) -> None:
    if type(old) is not type(new):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif type(old).__name__ == "deque":
        old.clear()
        old.extend(new)
    elif type(old).__name__ == "ndarray" and old.shape == new.shape:
        old[...] = new


def tester(number: int) -> None:
    """Runs the test that standard input holds.

    Args:
        number: of the open socket to the program.
    """
    try:
        Tester(number).run(sys.stdin.read())
    except BaseException as error:
        # SystemExit is caught too: a program may raise it to end this process with status 0.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
