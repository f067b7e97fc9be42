"""The paths that a program may read: the system's programs and libraries, this Python and its packages. No home folder,
no temporary file and no data are among them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_SETTINGS = ("alternatives", "fonts", "ld.so.cache", "passwd", "group", "nsswitch.conf", "localtime")
_NETWORK = ("hosts", "resolv.conf", "services", "protocols", "gai.conf", "ssl", "pki", "ca-certificates")
# Python may be installed in a home folder. Only these entries of such a folder are readable.
_OF_PYTHON = ("bin", "lib", "lib64", "share", "ssl", "pyvenv.cfg")


@cache
def readable_paths(network: bool, further: tuple[str, ...] = ()) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the paths that a program may read.

    Args:
        network: whether it may have the network, and so needs names and certificates.
        further: paths in addition to the usual.

    Returns:
        Real paths, none inside another, and the path and target of every symbolic link on the way to them.

    Example:
        >>> paths, links = readable_paths(network=False)
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
    """Returns the real path, and adds every link on the way to `links`."""
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
    """Yields the folders of this Python, of the packages that its programs can import, and of the libraries that this
    process has loaded.
    """
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        yield from (os.path.join(prefix, part) for part in _OF_PYTHON)
    yield sys.executable
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # The child runs as a program does: without this process's variables, which may add folders that hold no packages.
    asking = [*python(), "-c", "import json, sys; print(json.dumps(sys.path))"]
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    asked = subprocess.run(asking, capture_output=True, text=True, timeout=60, check=False, env=environment)
    if asked.returncode == 0:
        yield from (path for path in json.loads(asked.stdout.splitlines()[-1]) if path)
    # The Python of a cluster may load libraries from folders of its own.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if ".so" in os.path.basename(path) and os.path.isfile(path):
            yield path


def python() -> list[str]:
    """Returns the command of this Python without user packages, and without the working directory on its path.

    Example:
        >>> python()[1:]
        ['-s', '-P', '-B']
    """
    return [sys.executable, "-s", "-P", "-B"]
