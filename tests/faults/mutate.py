"""Ways to spoil what is whole: a value in a table, the bytes of a text, a file in its place. Every one draws from the
generator that it is given.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

Key = str | int

# Nothing between a thousand and a billion: that is allowed, and only makes a run long.
NUMBERS: list[Any] = [-1, 0, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf")]
NUMBERS += [sign * size for size in (2**31, 2**63, 10**39, 10**400) for sign in (1, -1)]
TEXTS = [
    "",
    " ",
    "x",
    "nan",
    "null",
    "../..",
    "/",
    "a" * 300,
    "\0",
    "\ud800",
    "é\u202e",
    "{",
    "{0}",
    "a:b",
    ":",
    "1e999",
]
TEXTS += ["1e999", "{prompt:>100000000}", "/dev/zero", "os:getcwd"]
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"": 0}, {"kind": "x"}, {"kind": None}]
OTHERS += [["\ud800"], {"\ud800": 1}]


def places(tree: Any, path: tuple[Key, ...] = ()) -> list[tuple[Key, ...]]:
    """Every place in a table below its root."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in inside for place in ((*path, key), *places(value, (*path, key)))]


def deep(levels: int) -> Any:
    """Tables inside tables."""
    tree: Any = 1
    for _ in range(levels):
        tree = {"a": tree} if levels % 2 else [tree]
    return tree


def strange(draw: random.Random, value: Any) -> Any:
    """A value that does not belong where `value` stood, mostly of the same type."""
    if isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.7:
        return draw.choice(NUMBERS)
    if isinstance(value, str) and draw.random() < 0.7:
        return draw.choice([*TEXTS, value[:-1], value.upper(), f"{value}\n"])
    return draw.choice([*NUMBERS, *TEXTS, *OTHERS, deep(draw.choice([30, 65, 400])), [value], {"a": value}])


def spoiled(draw: random.Random, tree: Any) -> tuple[Any, str]:
    """A table with one place spoiled, and the name of its key."""
    tree = copy.deepcopy(tree)
    if not (known := places(tree)):
        return strange(draw, tree), ""
    *above, last = draw.choice(known)
    node = tree
    for key in above:
        node = node[key]
    name = str(next((key for key in (last, *reversed(above)) if isinstance(key, str)), ""))
    # Without these a run is as long as it is by default.
    how = 0.0 if last in ("num_steps", "train", "task_model") else draw.random()
    if how < 0.7:
        node[last] = strange(draw, node[last])
    elif how < 0.85:
        del node[last]
    elif isinstance(node, dict):
        name = draw.choice([f"{last}x", str(last).upper(), "\ud800", "", "a" * 300, "kind", "."])
        node[name] = node.pop(last)
    else:
        node.append(strange(draw, node[last]))
    return tree, name


def spoil_text(draw: random.Random, data: bytes) -> bytes:
    """The bytes of a text, damaged."""
    at = draw.randrange(len(data) + 1)
    numbers, texts = list(re.finditer(rb"\b\d+\b", data)), list(re.finditer(rb'"[^"\n]{1,40}"', data))
    number, text = (draw.choice(found).span() if found else (at, at) for found in (numbers, texts))
    lines = data.split(b"\n")
    ways = {
        "cut": data[:at],
        "empty": b"",
        "flipped": data[:at] + bytes(byte ^ 1 << draw.randrange(8) for byte in data[at : at + 3]) + data[at + 3 :],
        "NUL": data[:at] + b"\0" + data[at:],
        "no UTF-8": data[:at] + b"\xff\xfe" + data[at:],
        "mark": b"\xef\xbb\xbf" + data,
        "UTF-16": data.decode("utf-8", "replace").encode("utf-16"),
        "digits": data[: number[0]] + b"9" * draw.choice([30, 400, 6000]) + data[number[1] :],
        "nan": data[: number[0]] + draw.choice([b"NaN", b"nan", b"1e999", b"-Infinity"]) + data[number[1] :],
        "surrogate": data[: text[0]] + rb'"\ud800 1"' + data[text[1] :],
        "brackets": data[:at] + draw.choice([b"[", b"{", b'{"a":', b"a."]) * draw.choice([100, 100_000]) + data[at:],
        "twice": b"\n".join([*lines, draw.choice(lines)]),
        "line gone": b"\n".join(lines[: at % len(lines)] + lines[at % len(lines) + 1 :]),
        "long": data[:at] + b"a" * 3_000_000 + data[at:],
    }
    return ways[draw.choice(list(ways))]


def spoil_json(draw: random.Random, data: bytes) -> bytes:
    """The text of a JSON file or of JSON lines with one value spoiled; what is none is spoiled as a text."""
    try:
        lines = data.split(b"\n") if b"}\n{" in data else [data]
        at = draw.randrange(len(lines))
        tree, _ = spoiled(draw, json.loads(lines[at]))
        lines[at] = json.dumps(tree).encode()
        return b"\n".join(lines)
    except ValueError:
        return spoil_text(draw, data)


def spoil_file(draw: random.Random, path: Path) -> None:
    """A file, or what stands in its place."""
    how = draw.random()
    if how < 0.35 and path.stat().st_size < 2**22:
        path.write_bytes(spoil_json(draw, path.read_bytes()))
        return
    if how < 0.7:
        path.write_bytes(spoil_text(draw, path.read_bytes()))
        return
    path.unlink()
    match draw.choice(["gone", "pipe", "folder", "dangling", "loop", "device", "another", "sparse", "closed"]):
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to(path.parent / "nowhere")
        case "loop":
            path.symlink_to(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "another":
            shutil.copy(draw.choice([Path(__file__), Path("/bin/ls")]), path)
        case "sparse":
            path.touch()
            os.truncate(path, 2**40)
        case "closed":
            path.write_bytes(b"{}")
            path.chmod(0)
        case _:
            pass
