"""Tests find in a program what they would find in its own process, and nothing that it makes of itself passes for a
value.
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import decimal
import fractions
import json
import math
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
from tests.marks import slow_but

from groupwise.reward import UnitTests
from groupwise.reward.base import Noted
from groupwise.reward.programs.isolated_test.plain_data import decode, encode
from groupwise.reward.wall import machine_wall

HONEST = {
    """
    def check(x):
        if x < 0: raise ValueError("negative")
    class Coded(KeyError):
        def __init__(self, code): super().__init__(code); self.code = code
    class Worse(Coded): pass
    def fail(kind): raise kind(3)
    """: [
        "try: check(-1)\nexcept ValueError as error: assert str(error) == 'negative'\nelse: assert False",
        "try: fail(Coded)\nexcept Coded as error: assert error.code == 3 and error.args == (3,)",
        "try: fail(Worse)\nexcept KeyError: pass",
        "import pytest\nwith pytest.raises(Coded): fail(Worse)",
    ],
    """
    class Stack:
        def __init__(self, *items): self.items = list(items)
        def push(self, item): self.items.append(item)
        def __len__(self): return len(self.items)
        def __contains__(self, item): return item in self.items
        def __iter__(self): return iter(self.items)
        def __getitem__(self, place): return self.items[place]
        def __eq__(self, other): return self.items == other.items
        def __lt__(self, other): return self.items < other.items
        def __add__(self, other): return Stack(*self.items, *other.items)
        def __repr__(self): return "Stack!"
        def __enter__(self): return self
        def __exit__(self, *why): self.items.clear()
        def pushed(self, item): self.push(item); return self
        @classmethod
        def of(cls, item): return cls(item)
    def found(item): return Stack(item)
    def owned(item): return Own([item])
    class Own(list):
        def last(self): return self[-1]
    """: [
        (
            "s = Stack(1); s.push(2); assert len(s) == 2 and 2 in s and list(s) == [1, 2] == s.items and s[0] == 1 and"
            " repr(s) == f'{s}' == 'Stack!'"
        ),
        (
            "assert Stack(1) == Stack(1) != Stack(2) and sorted([Stack(2), Stack(1)])[0] == Stack(1) and Stack(1) +"
            " Stack(2) == Stack(1, 2)"
        ),
        "s = Stack(1)\nwith s as t: assert t is s and isinstance(t, Stack)\nassert not s",
        "s = Stack(1); s.items = [5]; assert s.items.pop() == 5",
        (
            "own = Own([1]); own.append(2); assert own == [1, 2] and own.last() == 2 and own + [3] == [1, 2, 3] and 2"
            " in own"
        ),
        (
            "s = Stack(1); assert s.pushed(2) is s and 2 in s and 3 not in s and s and not Stack() and"
            " Stack.of(3).pushed(4).items == [3, 4]"
        ),
        "assert 2 in found(2) and 3 not in found(2) and found(2).items == [2] and owned(2) == [2] and 2 in owned(2)",
    ],
    """
    import asyncio, enum
    from collections import Counter, namedtuple
    Point = namedtuple("Point", "x y")
    Colour = enum.Enum("Colour", "RED BLUE")
    def sort(values): values.sort()
    def each(f, values): return [f(value) for value in values]
    def adder(n): return lambda x: x + n
    def count(n): yield from range(n)
    def total(values): return sum(values)
    def colour(): return Colour.RED
    def letters(text): return Counter(text)
    def hello(): print("hello")
    said = []
    def say(what): said.append(what)
    large = bytearray(2**22)
    async def later(x):
        await asyncio.sleep(0)
        return x + 1
    """: [
        "x = [3, 1]; sort(x); assert x == [1, 3]",
        (
            "assert each(lambda x: x * 2, [1, 2]) == [2, 4] and each(len, ['ab']) == [2] and each(str, [1]) == ['1']"
            " and adder(3)(4) == 7"
        ),
        (
            "g = count(3); assert next(g) == 0 and list(g) == [1, 2] and 2 in count(3) and 3 not in count(3) and"
            " g.close() is None and sum(count(4)) == 6 and total(x * x for x in"
            " range(4)) == 14"
        ),
        "assert colour() is Colour.RED and colour() == Colour.RED != Colour.BLUE and colour().name == 'RED'",
        "p = Point(1, 2); assert p == (1, 2) and p.x == 1 and p._asdict() == {'x': 1, 'y': 2} and isinstance(p, tuple)",
        "assert letters('aab') == {'a': 2, 'b': 1} and letters('aab').most_common(1) == [('a', 2)]",
        (
            "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as printed: hello()\nassert"
            " printed.getvalue() == 'hello\\n'"
        ),
        "say(1)\ndef last(): return said[-1]\nsay(2); assert last() == 2 and said == [1, 2]",
        "import asyncio\nassert asyncio.run(later(2)) == 3",
        "def examine(candidate):\n    assert abs(candidate([.1, .2]) - .3) < 1e-9\nexamine(total)",
        (
            "import solution\nfrom solution import *\nfrom solution import sort as own\nsort(x := [2, 1]); assert x =="
            " [1, 2] and solution.total is total"
        ),
    ],
    """
    import numpy as np
    def sort(values): values.sort()
    def twice(x): return np.array(x) * 2
    """: [
        "import numpy as np\nx = np.array([3, 1]); sort(x); assert x.tolist() == [1, 3]",
        "assert np.allclose(twice([1, 2]), [2, 4]) and (twice([1]) == np.array([2])).all()",
    ],
}

LIAR = """
class Liar(KIND):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = __isub__ = __eq__
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return 0.0
    def __round__(self, digits=0): return 0.0
    def __hash__(self): return hash(7264913)
    def __array__(self, *given, **named):
        import numpy
        return numpy.zeros(())
    def __array_ufunc__(self, *given, **named): return True
def add(a, b): return RESULT
"""
EQUAL = "assert add(1, 2) == 7264913"
FORMS = [
    EQUAL,
    "assert 7264913 == add(1, 2)",
    "assert abs(add(1, 2) - 3.14) < 1e-6 and abs(3.14 - add(1, 2)) < 1e-6",
    "assert 7264912 < add(1, 2) < 7264914",
    "assert add(1, 2) in (7264913,) or add(1, 2) in {7264913}",
    "import math\nassert math.isclose(add(1, 2), 3.14)",
    "import unittest\nunittest.TestCase().assertAlmostEqual(add(1, 2), 3.14)",
    "import pytest\nassert add(1, 2) == pytest.approx(3.14)",
    "import numpy as np\nassert np.allclose(add(1, 2), 3.14)",
]
KINDS = ("object", "int", "float", "str", "tuple", "list", "dict")
INSIDE = {kind: ["[Liar()]", "(Liar(),)", "{1: Liar()}"] for kind in ("object", "int", "str", "list")}

YES = """
class A(KIND):
    __contains__ = __bool__ = __call__ = issuperset = startswith = count = covers = lambda self, *given: True
    def __getattr__(self, name): return A()
"""
MEMBERSHIP = [
    "assert 17 in primes(20) and 19 in primes(20)",
    "import unittest\nunittest.TestCase().assertIn(17, primes(20))",
    "assert primes(20).issuperset({2, 3})",
    "assert primes(20).startswith('2')",
    "assert primes(20).count(17) == 1",
    "assert primes(20)",
    "assert primes(20).covers(17)",
]

# 7264913, in a way that does not stand in the program itself.
NUMBER = "''.join(map(chr, [55, 50, 54, 52, 57, 49, 51]))"
HOSTILE = [
    "class add:\n    def __init__(self, *given): pass\n    def __eq__(self, other): return True",
    (
        "class Kind(type):\n    def __eq__(self, other): return True\nclass A(metaclass=Kind): pass\ndef add(a, b):"
        " return A"
    ),
    *(
        f"class Out(SystemExit): pass\ndef add(a, b): raise {out}"
        for out in ("SystemExit(0)", "Out(0)", "KeyboardInterrupt", "GeneratorExit")
    ),
    "import os\ndef add(a, b): os._exit(0)",
    "import os, atexit\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
    "import os\nclass D:\n    def __del__(self): os._exit(0)\nd = D()\ndef add(a, b): return 0",
    (
        "import builtins\nfor name in ('isinstance', 'bool', 'all', 'any', 'getattr'): setattr(builtins, name, lambda"
        " *given: True)\ndef add(a, b): return 0"
    ),
    (
        "import json, sys\nfor module in list(sys.modules.values()):\n    for name in ('encode', 'decode', 'bare'):\n  "
        "      if hasattr(module, name): setattr(module, name, lambda *given: None)\ndef add(a, b): return 0"
    ),
    (
        "import json\nwrite = json.dumps\njson.dumps = lambda what: write([what[0], {'value': True, 'printed':"
        " 'ok'}])\ndef add(a, b): return 0"
    ),
    (
        "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    while frame:\n        for value in"
        f" (*frame.f_code.co_consts, *frame.f_locals.values()):\n            if {NUMBER} in str(value)[:10000]: return"
        f" int({NUMBER})\n        frame = frame.f_back"
    ),
    (
        f"import gc\ndef add(a, b):\n    for one in gc.get_objects():\n        if {NUMBER} in repr(one)[:10000]: return"
        f" int({NUMBER})"
    ),
    (
        f"import os\ndef add(a, b):\n    os.lseek(0, 0, 0)\n    return int({NUMBER}) if {NUMBER} in os.read(0,"
        " 1000).decode() else 0"
    ),
    # Says to the other process, before it is asked, what would be its answers.
    (
        "import json, os\nfor number in range(3, 64):\n    try:\n        for told in ([['add', ['module',"
        " 'unittest.mock']]], [['add', ['builtin', 'print']]], {'value': True, 'printed': ''}, 'passed'):\n           "
        " os.write(number, (json.dumps(['answer', told]) + '\\n').encode())\n    except OSError: pass\ndef add(a, b):"
        " return 0"
    ),
]


OTHERS = (
    "import glob, os\ndef add(a, b):\n    for name in glob.glob('/proc/[0-9]*/cmdline') +"
    " glob.glob('/proc/[0-9]*/fd/*') + glob.glob('../groupwise-*/*'):\n        try: number = os.open(name, os.O_RDONLY"
    " | os.O_NONBLOCK)\n        except OSError: continue\n        try: text = os.read(number, 10000)\n        except"
    f" OSError: continue\n        if {NUMBER}.encode() in text: return int({NUMBER})"
)


def score(program: str, tests: list[str]) -> float:
    (value,) = asyncio.run(UnitTests(wall_seconds=60.0, cpu_seconds=60.0)([""], [dedent(program)], tests=[tests]))
    number = value.value if isinstance(value, Noted) else value
    assert number is not None
    return float(number)


@pytest.mark.slow
def test_honest_programs_pass():
    """All tests of a program in one text."""
    assert [score(program, ["\n".join(tests)]) for program, tests in HONEST.items()] == [1.0] * len(HONEST)


def all_fail(tests: list[str]) -> list[str]:
    """One test that passes where each of several raises."""
    tries = [f"try:\n{indent(test, '    ')}\n    passed.append({test!r})\nexcept Exception: pass\n" for test in tests]
    return [f"passed = []\n{''.join(tries)}assert passed == []"]


@pytest.mark.parametrize(
    ("kinds", "inside"),
    [
        ({"object": [*FORMS[:5], FORMS[-1]], "int": FORMS[:2]}, {"object": INSIDE["object"]}),
        pytest.param(
            {kind: FORMS if kind in ("object", "float") else FORMS[:2] for kind in KINDS},
            INSIDE,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["some", "all"],
)
def test_no_object_is_equal_or_near_to_what_it_does_not_know(
    kinds: dict[str, list[str]], inside: dict[str, list[str]]
) -> None:
    for kind, forms in kinds.items():
        assert score(LIAR.replace("KIND", kind).replace("RESULT", "Liar()"), all_fail(forms)) == 1.0, kind
    for kind, results in inside.items():
        given = LIAR.replace("KIND", kind).replace("RESULT", f"[{', '.join(results)}][a]")
        forms = [f"assert add({number}, 0) in ([9], (9,), {{1: 9}})" for number in range(len(results))]
        assert score(given, all_fail(forms)) == 1.0, kind


@pytest.mark.parametrize("kind", slow_but(("object",), ("object", "list", "set", "dict", "str", "int", "tuple")))
def test_no_object_answers_for_itself_whether_it_holds_what_is_expected(kind: str) -> None:
    assert score(YES.replace("KIND", kind) + "def primes(n): return A()", all_fail(MEMBERSHIP)) == 1.0
    assert score(YES.replace("KIND", kind).replace("A", "primes"), all_fail(MEMBERSHIP[:3])) == 1.0
    solution = "\nclass Solution:\n    def primes(self, n): return A()"
    tests = [test.replace("primes(", "Solution().primes(") for test in MEMBERSHIP[:3]]
    assert score(YES.replace("KIND", kind) + solution, all_fail(tests)) == 1.0


def test_no_trick_finds_what_is_expected_or_says_that_it_was_right():
    assert {program: passed for program in HOSTILE if (passed := score(program, [EQUAL]))} == {}


@pytest.mark.skipif(not machine_wall.best_wall().is_safe, reason="only a wall keeps one process of a user from another")
def test_other_processes_cannot_be_read() -> None:
    assert score(OTHERS, [EQUAL]) == 0.0


def test_pythons_own_names_mean_what_they_do():
    program = "import numpy as np\nnp.allclose = lambda *given: True\ndef sorted(values): return 0\n"
    tests = ["assert sorted(add(1, 2)) == sorted([4])", "assert np.allclose(add(1, 2), [3.0])"]
    assert score(program + "def add(a, b): return [1]", all_fail(tests)) == 1.0


def test_a_function_of_the_test_can_be_called_and_not_looked_into():
    looks = ["a.__closure__[0].cell_contents", "a.__globals__['expected']"]
    program = "".join(f"def look{number}(a): return {text}\n" for number, text in enumerate([*looks, "a()"]))
    tests = [f"expected = 'seven'\nassert look{number}(lambda: expected) == expected" for number in range(3)]
    assert score(program, all_fail(tests[:2])) == 1.0
    assert score(program, tests[2:]) == 1.0


def test_what_a_test_runs_as_a_script_is_run_and_a_name_that_is_not_there_is_missing():
    program = "def add(a, b): return 0"
    assert score(program, ["def main(): assert add(1, 2) == 3\nif __name__ == '__main__': main()"]) == 0.0
    assert score(program, all_fail(["from solution import sub", "import solution\nsolution.sub", "sub"])) == 1.0


@pytest.mark.slow
def test_large_lists_go_over_in_a_moment():
    program = "def order(values): return sorted(values)"
    test = "values = list(range(10**6, 0, -1)); assert order(values) == sorted(values) and values[0] == 10**6"
    assert score(program, [test]) == 1.0


# What goes over between the two processes comes out as it went in, and only as a built-in kind.


def refuse(*arguments: Any) -> Any:
    raise ValueError(f"not plain: {arguments}")


PLAIN = [None, True, -(7**3000), 2**63, 0.1, -0.0, math.inf, "a\ud800\n", b"\x00\xff", bytearray(b"ab"), 1 - 2j]
PLAIN += [range(1, 2**70, 3), [1, (2, {"a": {3, frozenset([4])}}), []], [1, -(2**63), 2**63 - 1], [2**63, 1]]
PLAIN += [[None, True, 0.5, "a"], [[1], [[2]]], collections.deque([1, 2]), collections.Counter("aab"), int, len]
PLAIN += [collections.OrderedDict([("b", 1), ("a", 2)]), decimal.Decimal("1.10"), fractions.Fraction(-1, 3), ValueError]
PLAIN += [datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.date(2020, 1, 2), datetime.time(1, 2)]
PLAIN += [datetime.timedelta(-1, 2, 3)]


def test_values_come_back_as_they_were():
    for value in PLAIN:
        back = decode(json.loads(json.dumps(encode(value, refuse))), refuse)
        assert (type(back), back, repr(back)) == (type(value), value, repr(value))


def test_arrays_come_back_as_they_were():
    for array in (np.array([[1.5, np.nan]]), np.array(["ab", "c"]), np.zeros((0, 3), dtype="i2")):
        back = decode(json.loads(json.dumps(encode(array, refuse))), refuse)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    assert decode(encode(np.int64(3), refuse), refuse) == 3
    with pytest.raises(ValueError, match="not plain"):
        encode(np.array([object()]), refuse)
    with pytest.raises(ValueError, match="no plain array"):
        decode(["array", ["|O", [1], "00" * 8, True]], refuse)


def test_what_is_derived_from_a_built_in_kind_is_not_plain():
    built_in = (int, float, str, bytes, tuple, list, dict, set, frozenset)
    for kind in (*built_in, decimal.Decimal, collections.Counter, np.float64):
        derived = type(kind.__name__, (kind,), {"__eq__": lambda self, other: True, "__hash__": lambda self: 0})()
        with pytest.raises(ValueError, match="not plain"):
            encode([derived], refuse)
    for content in (["__import__", "os"], ["builtin", "__import__"]):
        with pytest.raises(ValueError, match="not plain"):
            decode(content, refuse)
