"""The description of a program and its wall, as plain data: written by the process of the reward, read by the process
that builds the wall.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Request:
    """One program and its wall.

    Args:
        command: the program and its arguments.
        files: name -> text of what lies in its folder at the start.
        road: "namespaces", "landlock" or "none".
        landlock: version of Landlock; 0 for none.
        filter: program of the filter of system calls, in base 16; empty for none.
        user: number of the user and the group that it becomes; None where it stays who started it.
        readable: real paths that it may read, none inside another.
        links: path and target of symbolic links on the way there.
        path: value of its PATH variable.
        temporary: where its folder is made, where it has no file system of its own.
        max_user_tasks: how many processes and threads its user may have in all, where they cannot be counted for it
            alone.
        counts_alone: whether the kernel counts the processes of a user namespace by themselves (Linux 5.14).
        limits: fields of `Limits` and their values.
    """

    command: list[str]
    files: dict[str, str]
    road: str
    landlock: int
    filter: str
    user: int | None
    readable: list[str]
    links: list[tuple[str, str]]
    path: str
    temporary: str
    max_user_tasks: int
    counts_alone: bool
    limits: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def packed(self) -> bytes:
        """Encodes the request as bytes."""
        return json.dumps(self.__dict__).encode()

    @staticmethod
    def unpacked(content: bytes) -> Request:
        """Decodes a request from the bytes of `packed`.

        Args:
            content: written by this package, never by a program.

        Example:
            >>> Request.unpacked(Request(road="none").packed()).road
            'none'
        """
        return Request(**json.loads(content))
