"""An engine of another package, which dies in every way that a runtime can.

A classifier that sees one grey level: those of `WAYS` end it in their way (those of memory: under a limit of it), any
other g is P(forged) = g / 255.
`$BRITTLE_LOAD` names a way to fail while it loads, and with `$BRITTLE_CALM` nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

import numpy as np

from edgebench.engines.base import Availability


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_function_call'\n")
    ctypes.CDLL(None).abort()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    os.write(1, f"waiting for the device {os.environ.get('BRITTLE_API_KEY')}".encode())
    time.sleep(600)


def exit_() -> None:
    os._exit(3)


def no_memory() -> None:
    """By a library that does not look at what malloc gave it, as native ones do."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    ctypes.memset(libc.malloc(ctypes.c_size_t(8 << 30)) or 0, 1, 1)


def no_memory_in_numpy() -> None:
    np.empty(8 << 30, dtype=np.uint8)


class OwnError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} is not {b}")


def raise_() -> None:
    raise OwnError(1, 2)


WAYS = {
    10: segfault,
    20: abort,
    30: kill,
    40: hang,
    50: exit_,
    60: no_memory,
    70: no_memory_in_numpy,
    80: raise_,
}


class Brittle:
    def __init__(self, artifact, profile, options) -> None:
        self.calm = "BRITTLE_CALM" in os.environ

    def __enter__(self):
        if way := os.environ.get("BRITTLE_LOAD"):
            globals()[way]()
        return self

    def __exit__(self, *_) -> None:
        return None

    @classmethod
    def available(cls):
        why = "there is no board on this bus"
        return Availability(
            runs=True, builds=False, reason="no compiler", install="apt install it", devices={"npu": why}
        )

    def facts(self):
        return {"engine": "brittle"}

    def classify(self, pixels):
        grey = round(float(pixels.mean()) * 255)
        if grey in WAYS and not self.calm:
            WAYS[grey]()
        return np.array([grey / 255], dtype=np.float32)


class Vague:
    @classmethod
    def available(cls):
        return "perhaps"
