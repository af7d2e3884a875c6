"""Where an agent's knowledge comes from: nowhere, a frozen cache, a folder or index of articles, or an encyclopedia.

A source answers an entity with `Knowledge`, whose status says what came of it. None ever raises for a query, and none
waits without a bound: that nothing was found, and that nothing could be reached, are results like any other.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from edgebench.agent.sentences import article
from edgebench.config import build
from edgebench.errors import DataError, UsageError
from edgebench.trace import Knowledge

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

CACHE = "knowledge.jsonl"
"""In a run's folder: what was looked up. Passed as `--knowledge`, it is a frozen source."""
SUFFIXES = (".txt", ".md")
DATABASES = (".sqlite", ".sqlite3", ".db")
CONCLUSIVE = ("found", "nothing")
"""What a cache keeps; that a source could not be reached is asked again."""
HELP = "none, wikipedia, the https address of a MediaWiki's api.php, a folder of articles, an SQLite index, or the knowledge.jsonl of a run"


class Source(Protocol):
    """Something that can be looked up."""

    name: str
    """For a run's settings; a frozen one holds its hash."""

    def look_up(self, query: str) -> Knowledge:
        """What there is about an entity."""

    def close(self) -> None:
        """Let go of files and connections."""


class Off:
    """No source."""

    name = "none"

    def look_up(self, query: str) -> Knowledge:
        """Nothing, and why."""
        return Knowledge(query=query, status="off")

    def close(self) -> None:
        """There is nothing to close."""


class Articles:
    """A full-text index of articles: SQLite's FTS5 over `articles(title, text)`."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    @classmethod
    def of_folder(cls, folder: Path) -> Articles:
        """Index a folder's .txt and .md files, in memory; the file's name is the title.

        Raises:
            DataError: there is none, or one is not UTF-8.
        """
        paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not paths:
            raise DataError("holds no article", where=folder, hint="put .txt or .md files into it, a title each")
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE articles USING fts5(title, text)")
        digest = hashlib.sha256()
        for path in paths:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"cannot be read as UTF-8: {error}", where=path) from error
            digest.update(f"{path.relative_to(folder).as_posix()}\0{text}\0".encode())
            connection.execute("INSERT INTO articles VALUES (?, ?)", (path.stem.replace("_", " "), text))
        return cls(connection, f"folder:{digest.hexdigest()[:12]}")

    @classmethod
    def of_file(cls, path: Path) -> Articles:
        """Open an index that is there: a table `articles` with `title` and `text`, made by FTS5.

        Raises:
            DataError: it is no such file.
        """
        try:
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            connection.execute("SELECT title, text FROM articles WHERE articles MATCH '\"a\"' LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise DataError(
                f"is no full-text index of articles: {error}",
                where=path,
                hint="make it with CREATE VIRTUAL TABLE articles USING fts5(title, text)",
            ) from error
        return cls(connection, f"index:{_sha256(path)}")

    def look_up(self, query: str) -> Knowledge:
        """The article of that title, else the best one with all words of the query in its title, else in its text."""
        words = " ".join('"' + word.replace('"', "") + '"' for word in query.split())
        found: list[tuple[str, str]] = []
        if words.strip('" '):
            for columns in ("{title}", "{title text}"):
                try:
                    cursor = self._connection.execute(
                        "SELECT title, text FROM articles WHERE articles MATCH ? "
                        "ORDER BY lower(title) <> ?, bm25(articles, 5.0, 1.0) LIMIT 1",
                        (f"{columns} : ({words})", query.casefold()),
                    )
                    found = cursor.fetchall()
                except sqlite3.Error as error:
                    return Knowledge(query=query, status="unreachable", source=self.name, reason=str(error))
                if found:
                    break
        if not found:
            return Knowledge(query=query, status="nothing", source=self.name)
        title, text = found[0]
        return Knowledge(query=query, status="found", text=article(str(text)), title=str(title), source=self.name)

    def close(self) -> None:
        """Close the index."""
        self._connection.close()


class Frozen:
    """What another run looked up, and nothing else: the same answers on every machine, without a network."""

    def __init__(self, path: Path) -> None:
        """Read a cache.

        Raises:
            DataError: it is no such file.
        """
        self._known = read_cache(path)
        self.name = f"frozen:{_sha256(path)}"

    def look_up(self, query: str) -> Knowledge:
        """What is in the cache."""
        return self._known.get(query) or Knowledge(query=query, status="not cached", source=self.name)

    def close(self) -> None:
        """There is nothing to close."""


class Kept:
    """A source whose answers are kept in a file, and asked for once."""

    def __init__(self, source: Source, path: Path) -> None:
        """Begin, or go on with, a cache.

        Raises:
            DataError: the file is damaged or cannot be written.
        """
        self.name = source.name
        self._source, self._path = source, path
        self._known = read_cache(path) if path.exists() else {}
        self._stream: IO[bytes]
        try:
            _cut_torn_line(path)
            self._stream = path.open("ab", buffering=0)
        except OSError as error:
            raise DataError(f"cannot be written: {error.strerror or error}", where=path) from error

    def look_up(self, query: str) -> Knowledge:
        """From the file, else from the source."""
        if query in self._known:
            return self._known[query]
        found = self._source.look_up(query)
        if found.status in CONCLUSIVE:
            kept = replace(found, elapsed_ns=None)
            line = {k: v for k, v in vars(kept).items() if v not in (None, "")}
            try:
                self._stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            except OSError as error:
                raise DataError(f"cannot be written: {error.strerror or error}", where=self._path) from error
            self._known[query] = kept
        return found

    def close(self) -> None:
        """Close the file and the source."""
        self._stream.close()
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_cache(path: Path) -> dict[str, Knowledge]:
    """The lookups of a cache file, by query; a torn last line is left out.

    Raises:
        DataError: it cannot be read, or holds something else.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=path) from error
    known: dict[str, Knowledge] = {}
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            value: Any = json.loads(line)
        except ValueError as error:
            raise DataError("is no line of a knowledge cache", where=f"{path}:{number}") from error
        found = build(Knowledge, value, where=f"{path}:{number}", error=DataError)
        known[found.query] = found
    return known


def open_source(name: str) -> Source:
    """The source of that name; see `HELP`.

    Raises:
        UsageError: no such source.
        DataError: a file or folder that is no source.
        MissingExtraError: the extra of the encyclopedia is not installed.
    """
    if name == "none":
        return Off()
    if name == "wikipedia" or "://" in name:
        from edgebench.agent.wikipedia import Wikipedia

        return Wikipedia() if name == "wikipedia" else Wikipedia(name)
    path = Path(name)
    if path.is_dir():
        return Articles.of_folder(path)
    if path.is_file():
        return Articles.of_file(path) if path.suffix.lower() in DATABASES else Frozen(path)
    raise UsageError(f"no source of knowledge is called {name!r}", hint=f"take {HELP}")


def _cut_torn_line(path: Path) -> None:
    if path.exists():
        raw = path.read_bytes()
        if raw and not raw.endswith(b"\n"):
            path.write_bytes(raw[: raw.rfind(b"\n") + 1])


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:12]
