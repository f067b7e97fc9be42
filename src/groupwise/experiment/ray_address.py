"""The check of a Ray cluster's address before Ray itself tries it, which takes minutes where nobody answers."""

from __future__ import annotations

import socket

from groupwise.config import ConfigError

PATIENCE_SECONDS = 5.0
"""The longest wait for a connection, and again for an answer."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of a gRPC client: the preface of HTTP/2 and an empty frame of settings (RFC 9113, section 3.4)."""

_FRAME_HEAD = 9
_SETTINGS = 4


def check_address(address: str) -> None:
    """Refuses an address at which no gRPC server answers; a cluster of Ray is one.

    Args:
        address: `HOST:PORT` or `ray://HOST:PORT`; names that Ray resolves itself (`auto`, `local`) pass.

    Raises:
        ConfigError: nobody answers within ten seconds, or the address has no port.

    Example:
        >>> check_address("auto")
        >>> check_address("head")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no Ray cluster at 'head' (it has no port); give --address HOST:PORT of one, or leave it out to start one here
    """  # noqa: E501
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise unreachable(address, "it has no port")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(_PREFACE)
            head = connection.recv(_FRAME_HEAD, socket.MSG_WAITALL)
    except (OSError, OverflowError) as error:
        reason = f"no answer within {PATIENCE_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
        raise unreachable(address, reason) from error
    if len(head) < _FRAME_HEAD or head[3] != _SETTINGS:
        raise unreachable(address, "what answers there is no Ray")


def unreachable(address: str, reason: object) -> ConfigError:
    """Returns the error about a cluster that cannot be reached.

    Args:
        reason: the cause, in a few words.
    """
    return ConfigError(
        f"no Ray cluster at {address!r} ({reason}); give --address HOST:PORT of one, or leave it out to start one here"
    )
