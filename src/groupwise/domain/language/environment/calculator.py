"""A calculator as a tool: exact arithmetic on a small expression, and nothing else of Python."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# Text with other characters is refused first, because Python's parser would warn about some of it.
_CHARACTERS = re.compile(r"[0-9eE_.+\-*/%^×()\s]*+")
_ALLOWED = "only numbers, + - * / // % ** and brackets"
_MAX_LENGTH = 200
_MAX_DIGITS = 60


def calculate(expression: str) -> str:
    """Computes the value of an expression of numbers, `+ - * / // % **` and brackets; an expression without a value
    gives the reason.

    Args:
        expression: of at most 200 characters, such as (2 + 3) * 4.

    Example:
        >>> calculate("(2 + 3) * 4"), calculate("1 / 3"), calculate("1 / 0"), calculate("open('x')")
        ('20', '0.333333', 'error: division by zero', 'error: only numbers, + - * / // % ** and brackets')
    """
    if len(expression) > _MAX_LENGTH:
        return f"error: longer than {_MAX_LENGTH} characters"
    if not _CHARACTERS.fullmatch(expression):
        return f"error: {_ALLOWED}"
    try:
        value = _value(ast.parse(expression.strip().replace("×", "*").replace("^", "**"), mode="eval").body)
        if value.denominator == 1:
            return str(value.numerator)
        return f"{float(value):.6g}"
    except ZeroDivisionError:
        return "error: division by zero"
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"error: {error}" if type(error) is ValueError else "error: no expression"


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _small(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in _BINARY:
            return _small(Fraction(_BINARY[type(node.op)](left, right)))
    raise ValueError(_ALLOWED)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    # Looked at before it is computed: 9**9**9 would never come back.
    digits = max(len(str(abs(base.numerator))), len(str(base.denominator))) * abs(exponent)
    if exponent.denominator != 1 or digits > _MAX_DIGITS:
        raise ValueError("exponents are whole numbers, and results at most 60 digits")
    return _small(base**exponent.numerator)


def _small(value: Fraction) -> Fraction:
    if max(len(str(abs(value.numerator))), len(str(value.denominator))) > _MAX_DIGITS:
        raise ValueError("exponents are whole numbers, and results at most 60 digits")
    return value
