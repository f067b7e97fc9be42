"""Files that a person named: read whole, and only regular files of a size that one machine reads at once."""

import csv
import errno
import io
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.tables import check_dots, check_plain

MOST_BYTES = 2**33
"""The most bytes of a file of data."""

MOST_TABLE_BYTES = 2**28
"""The most bytes of a configuration, a summary or a table of numbers."""


def check_file(path: Path, most: int = MOST_BYTES) -> None:
    """Refuses a file that cannot be read to its end: a pipe or a device may never end, and a file with a hole may claim
    more bytes than there is memory.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: the file is absent, is not a regular file, is larger, or cannot be read; `strerror` states the reason,
            and `filename` the path.

    Example:
        >>> check_file(Path("/dev/zero"))
        Traceback (most recent call last):
        OSError: [Errno 22] is no file: '/dev/zero'
    """
    size = path.stat().st_size
    if not path.is_file():
        raise OSError(errno.EINVAL, "is no file", str(path))
    if size > most:
        raise OSError(
            errno.EFBIG, f"has {size / 2**20:.0f} MiB, more than the {most / 2**20:.0f} MiB that are read", str(path)
        )


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns the bytes of a file that `check_file` accepts.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: `check_file` refuses the file.
    """
    check_file(path, most)
    return path.read_bytes()


# Configuration files, read with errors that name the file and the line.


def _read(path: str | Path) -> str:
    path = Path(path)
    try:
        # Some editors write a byte order mark at the beginning of a file.
        return read_whole(path, MOST_TABLE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read as text ({getattr(error, 'strerror', None) or error}); give a TOML or JSON file"
        ) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Reads the table in a TOML file.

    Raises:
        ConfigError: the file is absent, unreadable or not TOML; the line is named.

    Example:
        >>> read_toml("nowhere.toml")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such file: nowhere.toml
    """
    text = _read(path)
    check_dots(text, str(path))
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {_why_unreadable(error)}") from None
    check_plain(tree, str(path))
    return tree


def read_json(path: str | Path) -> dict[str, Any]:
    """Reads the table in a JSON file, for example the `config.json` of a run.

    Raises:
        ConfigError: the file is absent, unreadable, not JSON, or not a table; the line is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "config.json").write_text('{"seed": 3}')
        ...     read_json(Path(folder) / "config.json")
        {'seed': 3}
    """
    tree = _parsed(_read(path), str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: holds {type(tree).__name__}, not a table of keys")
    check_plain(tree, str(path), config=False)
    return tree


def _parsed(text: str | bytes, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: is no JSON: {_why_unreadable(error)}") from None


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its tables and lists lie too deep inside each other"
    digits = "integer string conversion" in str(error)
    return "a whole number in it has more than 4,300 digits" if digits else str(error)


# Tables that people write: an error names the row that cannot be read.

ENDINGS = (".csv", ".json", ".jsonl", ".parquet", ".tsv", ".txt")
"""The endings of files that `read_rows` reads."""

Rows = list[tuple[str, dict[str, Any]]]
"""Rows, each with its place for errors (`FILE, line 3`)."""


def read_rows(path: str | Path, key: str) -> Rows:
    """Reads a table, in the form that the file's extension names.

    A `.jsonl` file has one object a line, a `.json` file a list of objects. The first line of a `.csv` or `.tsv` file
    names the columns, and every cell is a text. A `.txt` file has one prompt a line. Empty lines are left out.

    Args:
        key: the key of the configuration that names the file, for errors.

    Raises:
        ConfigError: the extension is none of `ENDINGS`; the file is absent, empty or not UTF-8; or a row cannot be
            read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "sums.csv"
        >>> _ = path.write_text("prompt,answer\\n2 + 2 =,4\\n")
        >>> [row for _, row in read_rows(path, "data.source.paths")]
        [{'prompt': '2 + 2 =', 'answer': '4'}]
    """
    path = Path(path)
    readers = {
        ".csv": _read_csv,
        ".json": _read_json_list,
        ".jsonl": read_json_lines,
        ".parquet": _read_parquet,
        ".tsv": _read_csv,
        ".txt": _read_prompts,
    }
    if (read := readers.get(path.suffix.lower())) is None:
        raise ConfigError(
            f"{key}: {str(path)!r} ends in {path.suffix!r}; write a file that ends in one of {', '.join(ENDINGS)}"
        )
    rows = read(path, key)
    if not rows:
        raise ConfigError(f"{key}: {str(path)!r} is empty")
    return rows


def read_json_lines(path: str | Path, key: str) -> Rows:
    """Reads a file with one JSON object a line, whatever its extension.

    Only a line feed ends a line: JSON allows every other separator inside a text.

    Raises:
        ConfigError: the file is absent, empty or not UTF-8; or a line is not JSON, no object, or has a text that UTF-8
            cannot store.
    """
    meant = "one JSON object a line"
    rows = [(place, _object(_parsed(line, place), place, meant)) for place, line in _lines(Path(path), key)]
    if not rows:
        raise ConfigError(f"{key}: {str(path)!r} is empty")
    return rows


def _read_json_list(path: Path, key: str) -> Rows:
    rows = _parsed(_bytes(path, key), f"{key}: {path}")
    if not isinstance(rows, list):
        raise ConfigError(
            f"{key}: {path} holds a {type(rows).__name__}; write a list of objects, or one object a line in a .jsonl"
            " file"
        )
    places = ((f"{path}, item {number}", row) for number, row in enumerate(rows))
    return [(place, _object(row, place, "a list of objects")) for place, row in places]


def _read_csv(path: Path, key: str) -> Rows:
    try:
        text = _bytes(path, key).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no UTF-8 ({error}); write the file in that encoding") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    rows: Rows = []
    names: list[str] = []
    try:
        for cells in reader:
            place = f"{path}, line {reader.line_num}"
            if not cells:
                continue
            if not names:
                names = [name.strip() for name in cells]
                if "" in names or len(set(names)) < len(names):
                    raise ConfigError(f"{place}: the columns are {names}; give each a name of its own")
            elif len(cells) != len(names):
                raise ConfigError(
                    f"{place}: has {len(cells)} cells, and the first line names {len(names)} columns"
                    f" ({', '.join(names)}); write a cell a column, in quotation marks where it holds the separator"
                )
            else:
                rows.append((place, dict(zip(names, cells, strict=True))))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}") from None
    return rows


def _read_parquet(path: Path, key: str) -> Rows:
    import pyarrow.parquet

    _check_exists(path, key)
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    # A damaged file can put anything into its schema and texts.
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise ConfigError(f"{key}: {path} cannot be read as Parquet: {error}") from error
    return [(f"{path}, row {number}", row) for number, row in enumerate(rows)]


def _read_prompts(path: Path, key: str) -> Rows:
    return [(place, {"prompt": line}) for place, line in _lines(path, key)]


def _lines(path: Path, key: str) -> list[tuple[str, str]]:
    """Returns the lines that are not empty, each with its place."""
    lines = []
    for number, line in enumerate(_bytes(path, key).split(b"\n"), 1):
        place = f"{path}, line {number}"
        try:
            # Some editors write a byte order mark at the beginning of a file.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{place}: is no UTF-8 ({error}); write the file in that encoding") from None
        if text:
            lines.append((place, text))
    return lines


def _check_exists(path: Path, key: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file {str(path)!r} (working directory {str(Path.cwd())!r})")


def _bytes(path: Path, key: str) -> bytes:
    _check_exists(path, key)
    try:
        return read_whole(path)
    except OSError as error:
        raise ConfigError(f"{key}: {str(path)!r} cannot be read: {error.strerror}") from None


def _object(row: Any, place: str, meant: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ConfigError(
            f'{place}: is a {type(row).__name__}; write {meant}, such as {{"prompt": "2 + 2 =", "answer": "4"}}'
        )
    check_plain(row, place, config=False)
    return row


def cache_folder() -> Path:
    """Returns `$GROUPWISE_CACHE`, or `~/.cache/groupwise` (below `$XDG_CACHE_HOME` where that is set).

    Example:
        >>> cache_folder().name != ""
        True
    """
    if configured_folder := os.environ.get("GROUPWISE_CACHE"):
        return Path(configured_folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupwise"
