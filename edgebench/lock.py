"""A file that one process at a time may hold."""

from __future__ import annotations

from typing import IO


def lock(stream: IO[bytes], *, wait: bool = False) -> bool:
    """Take an exclusive lock that ends with the process; True where the system has no such locks.

    Args:
        stream: of the file, open as long as it is held.
        wait: until another process lets go of it; False: do not get it then.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
