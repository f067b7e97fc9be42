"""What a program may read: the system's programs and libraries, this Python and its packages. Nobody's home, no
temporary files, no data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_SETTINGS = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
    "timezone",
    "mime.types",
)
_NETWORK = ("hosts", "resolv.conf", "services", "protocols", "gai.conf", "ssl", "pki", "ca-certificates")
# A Python may be installed into a home folder itself: of such a folder only these.
_OF_PYTHON = ("bin", "lib", "lib64", "share", "ssl", "pyvenv.cfg")


@cache
def readable(network: bool, further: tuple[str, ...] = ()) -> tuple[list[str], list[tuple[str, str]]]:
    """Paths that a program may read.

    Args:
        network: whether it may have the network, and so needs names and certificates.
        further: paths beside the usual.

    Returns:
        Real paths, none inside another, and the path and target of every symbolic link on the way to them.

    Example:
        >>> paths, links = readable(network=False)
        >>> any(sys.base_prefix.startswith(path) for path in paths) or os.path.realpath(
        ...     sys.base_prefix
        ... ) + "/lib" in paths
        True
    """
    settings = [f"/etc/{name}" for name in (*_SETTINGS, *(_NETWORK if network else ()))]
    links: dict[str, str] = {}
    real = {_followed(path, links) for path in (*_SYSTEM, *settings, *_of_python(), *further) if os.path.exists(path)}
    paths = sorted(path for path in real if not any(str(parent) in real for parent in Path(path).parents))
    return paths, sorted(links.items())


def _followed(path: str, links: dict[str, str]) -> str:
    """The real path; notes every link that is met."""
    resolved, remaining = "/", [part for part in os.path.abspath(path).split("/") if part]
    while remaining:
        step = os.path.join(resolved, remaining.pop(0))
        if os.path.islink(step):
            links[step] = os.readlink(step)
            target = os.path.normpath(os.path.join(resolved, links[step]))
            resolved, remaining = "/", [part for part in target.split("/") if part] + remaining
        else:
            resolved = step
    return resolved


def _of_python() -> Iterable[str]:
    """Folders of this Python, of the packages that a program of its finds, and of the libraries that this process has
    loaded.
    """
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        yield from (os.path.join(prefix, part) for part in _OF_PYTHON)
    yield sys.executable
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # As a program starts: without this process's variables, which may add folders that are no packages.
    asking = [*python(), "-c", "import json, sys; print(json.dumps(sys.path))"]
    asked = subprocess.run(
        asking,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    if asked.returncode == 0:
        yield from (path for path in json.loads(asked.stdout.splitlines()[-1]) if path)
    # A Python of a cluster has libraries in folders of their own.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if ".so" in os.path.basename(path) and os.path.isfile(path):
            yield path


def python() -> list[str]:
    """The command of this Python without user packages, and without the working directory on its path.

    Example:
        >>> python()[1:]
        ['-s', '-P', '-B']
    """
    return [sys.executable, "-s", "-P", "-B"]
