"""A program and its test in two processes that exchange only plain data: no code of the program runs in the process
that compares results.

Both are started with `command`: by a Python that need not know this package, and in which nothing but the standard
library is imported.
"""

import os

_START = (
    "import sys; sys.path.append({folder!r}); from isolated_test.{role} import {role}; sys.path.pop(); {role}({number})"
)


def command(role: str, number: int) -> list[str]:
    """Returns the arguments with which a Python becomes the process of the program or of the test.

    Args:
        role: "program", which runs `solution.py` of its working directory, or "tester", which runs the test that it
            reads from its standard input.
        number: of its end of the open socket between the two.

    Example:
        >>> command("tester", 7)[1].split("; ")[-1]
        'tester(7)'
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return ["-c", _START.format(folder=folder, role=role, number=number)]
