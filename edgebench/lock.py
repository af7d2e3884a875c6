"""A file that one process at a time may hold."""

from __future__ import annotations

from typing import IO


def lock(stream: IO[bytes]) -> bool:
    """Take an exclusive lock that ends with the process; True where the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
