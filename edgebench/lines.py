"""The lines of a run's records as they lie on the disk: one JSON object a line, the last one torn by a kill or not."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from edgebench.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ANSWER = b'{"kind":"answer","id":"'
"""What the line of an answer begins with, as `to_line` writes it."""


@dataclass(frozen=True)
class Again:
    """Which answers of a file no longer count."""

    lines: int
    """How many complete lines there were."""
    outdated: frozenset[int]
    """Numbers of lines whose question was asked again behind them."""


def to_line(kind: str, value: dict[str, Any]) -> bytes:
    """One line.

    Args:
        kind: 'sitting', 'answer' or 'window'.
        value: plain data; that of an answer begins with its id.
    """
    return _ENCODER.encode({"kind": kind, **value}).encode() + b"\n"


def read_lines(path: Path, count: int | None = None) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Number, kind and fields of every complete line, or of the first `count`; none where there is no file.

    Raises:
        RunError: a line is damaged.
    """
    for number, raw in itertools.islice(_complete(path), count):
        yield number, *_read(path, number, raw)


def asked_again(path: Path) -> Again:
    """Look over a file without reading what its answers hold.

    Raises:
        RunError: a line of a form that is not ours is damaged.
    """
    newest: dict[str, int] = {}
    outdated: set[int] = set()
    lines = 0
    for lines, raw in _complete(path):
        identity = _identity(path, lines, raw)
        if identity is not None:
            before = newest.get(identity)
            if before is not None:
                outdated.add(before)
            newest[identity] = lines
    return Again(lines, frozenset(outdated))


def cut_torn_line(path: Path, stream: IO[bytes]) -> None:
    """Shorten a file to its last complete line.

    Args:
        path: the file.
        stream: the same, open for writing.
    """
    size = os.fstat(stream.fileno()).st_size
    end = size
    with path.open("rb") as reader:
        while end > 0:
            start = max(0, end - 65536)
            reader.seek(start)
            newline = reader.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
    if end < size:
        os.ftruncate(stream.fileno(), end)


def _complete(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every line that has an end."""
    if not path.exists():
        return
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.endswith(b"\n"):
                return
            yield number, raw


def _identity(path: Path, number: int, raw: bytes) -> str | None:
    """The question that a line answers; None where it is no answer."""
    end = raw.find(b'"', len(_ANSWER))
    identity = raw[len(_ANSWER) : end]
    if raw.startswith(_ANSWER) and end >= 0 and identity.isascii() and b"\\" not in identity:
        return identity.decode()
    kind, value = _read(path, number, raw)
    return str(value.get("id")) if kind == "answer" else None


def _read(path: Path, number: int, raw: bytes) -> tuple[str, dict[str, Any]]:
    import msgspec

    try:
        try:
            value = msgspec.json.decode(raw)
        except msgspec.DecodeError:  # NaN, which the standard library takes, or no JSON at all
            value = json.loads(raw.decode())
        return value.pop("kind"), value
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RunError(
            "is not a record",
            where=f"{path}:{number}",
            hint="the file was changed by something else; move the line out of it",
        ) from error
