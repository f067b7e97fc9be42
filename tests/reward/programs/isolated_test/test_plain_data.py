"""What goes over between the two processes comes out as it went in, and only as a built-in kind."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import math
from typing import Any

import numpy as np
import pytest

from groupwise.reward.programs.isolated_test.plain_data import decode, encode
from groupwise.reward.programs.isolated_test.program import bare


def refuse(*arguments: Any) -> Any:
    raise ValueError(f"not plain: {arguments}")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(7**3000),
        2**63,
        0.1,
        -0.0,
        math.inf,
        "a\ud800\n",
        b"\x00\xff",
        bytearray(b"ab"),
        1 - 2j,
        ...,
        range(1, 2**70, 3),
        [1, (2, {"a": {3, frozenset([4])}}), []],
        [1, -(2**63), 2**63 - 1],
        [2**63, 1],
        [None, True, 0.5, "a"],
        [[1], [[2]]],
        collections.deque([1, 2]),
        collections.Counter("aab"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        decimal.Decimal("1.10"),
        fractions.Fraction(-1, 3),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC),
        datetime.date(2020, 1, 2),
        datetime.time(1, 2),
        datetime.timedelta(-1, 2, 3),
        int,
        len,
        ValueError,
    ],
)
def test_values_come_back_as_they_were(value: Any):
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
    kinds = (
        int,
        float,
        str,
        bytes,
        tuple,
        list,
        dict,
        set,
        frozenset,
        decimal.Decimal,
        collections.Counter,
        np.float64,
    )
    for kind in kinds:
        derived = type(kind.__name__, (kind,), {"__eq__": lambda self, other: True, "__hash__": lambda self: 0})()
        with pytest.raises(ValueError, match="not plain"):
            encode([derived], refuse)
    with pytest.raises(ValueError, match="not plain"):
        decode(["__import__", "os"], refuse)
    with pytest.raises(ValueError, match="not plain"):
        decode(["builtin", "__import__"], refuse)


@pytest.mark.parametrize("value", [3, 0.5, "ab", b"ab", (1,), frozenset([1]), [1], {1: 2}, {1}])
def test_the_bare_value_is_of_the_built_in_kind(value: Any):
    kind = type(value)
    derived = type(
        "Own", (kind,), {"__eq__": lambda self, other: True, "__hash__": None, "__iter__": lambda self: iter(())}
    )(value)
    assert type(bare(derived, (kind,))) is kind
    assert bare(derived, (kind,)) == value
