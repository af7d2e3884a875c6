"""One record per question, and the crash-safe store that keeps them.

A run is a folder: `run.json` (what was asked of what, written once) and `records.jsonl` (one JSON object a line,
appended): sittings (one process of `edgebench run` at work), answers, offline windows. A kill in the middle of a write
leaves a torn last line, which the next sitting cuts. A question that is asked again gets another line, which counts.
Facts are kept and numbers derived: every metric is a pure function of these lines.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgebench.config import build
from edgebench.endpoint import Endpoint
from edgebench.environment import Host
from edgebench.errors import RunError
from edgebench.lines import asked_again, cut_torn_line, read_lines, to_line
from edgebench.lock import lock as take_lock
from edgebench.profiles import DeviceProfile
from edgebench.subset import Subset
from edgebench.trace import Call
from edgebench.windows import Window
from edgebench.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

FORMAT = "edgebench-run/1"
HEADER = "run.json"
RECORDS = "records.jsonl"
CHECKPOINT = "checkpoint"
"""In place of a dialect: the run is of the checkpoint itself, which needs no parity."""
NO_WARMUP = "none"
NO_ANSWER = "Z"
"""The published letter of an answer without an option."""


@dataclass(frozen=True)
class Settings:
    """What decides an answer besides the artifact and the data. Two runs compare only if these agree."""

    engine: str
    provider: str
    bench: str
    scoring: str
    """'generate' (greedy tokens, then a matcher) or 'logits' (the likeliest option letter)."""
    matcher: str
    prompt_style: str
    image_path: str
    """'lossless', or 'official-jpeg75': one more JPEG pass at quality 75, as in the published scores."""
    max_new_tokens: int
    limit: int | None
    perturbation: str | None = None
    """Such as 'noise:3'; see `edgebench.media.perturb`."""
    reuse: bool = False
    memory: str = "normal"
    protocol: str | None = None
    prompts: str | None = None
    knowledge: str | None = None
    """MMFakeBench: standard, mmd-agent, mixed; the instructions; the source. Forensics-Bench: attribution; the variant."""
    endpoint: Endpoint | None = None
    """Where the model is, of an engine whose model is elsewhere."""
    options: tuple[str, ...] = ()
    """Settings of the engine's own, by `--option`: 'name=value', sorted."""
    subset: str | None = None
    scenario: str = "single-stream"
    batch: int | None = None
    equalize: str | None = None
    """'png' or 'jpeg96': see `edgebench.benches.container`."""


@dataclass(frozen=True)
class ArtifactFact:
    """The artifact of a run, as far as a report needs it."""

    name: str
    family: str
    dialect: str
    precision: str
    bytes: int | None
    """On the disk; None where the checkpoint itself was run."""
    manifest_sha256: str
    source_sha256: str
    passport: str | None
    parity: dict[str, Any] | None
    work: dict[str, Work] = field(default_factory=dict)
    """By graph; empty where the manifest does not state it."""
    cache_bytes_per_token: int | None = None


@dataclass(frozen=True)
class DataFact:
    """The benchmark data of a run."""

    name: str
    bytes: int
    fingerprint: str
    """How the data were recognised again: see the bench's `fingerprint`."""
    questions: int = 0
    """How many samples the run is over, with its limit."""
    note: str = ""


@dataclass(frozen=True)
class Limits:
    """When the engine's process is given up. They decide no answer, so a run may be continued under others."""

    question_s: float = 1800.0
    """A question that takes longer is failed: the process hangs, and is ended."""
    load_s: float = 7200.0
    """The same of loading, with all that is built for the device."""
    restarts: int = 10
    """How often in one sitting a process that ended is started again."""


@dataclass(frozen=True)
class RunHeader:
    """The facts of a run that hold for every sitting."""

    format: str
    created: str
    edgebench: str
    settings: Settings
    artifact: ArtifactFact | None
    """None for the engine `null` without a model."""
    data: DataFact
    limits: Limits | None = None
    subset: Subset | None = None
    """Limits: of the first sitting, old runs have none. Without a subset: all questions."""


@dataclass(frozen=True)
class Sitting:
    """One process of `edgebench run` at work on a run."""

    sitting: int
    started: str
    host: Host
    engine: dict[str, Any]
    """The engine's own facts: versions, providers, threads."""
    memory_method: str
    profile: str
    load_ns: int | None = None
    """Loading the artifact into the engine, without the warm-up; None of a model that is elsewhere."""
    warmup_ns: int | None = None
    """The warm-up question, answered once and thrown away; None when there was none, or it failed."""
    warmup: str | None = None
    """By which rule it was warmed up, or 'none'; None in older runs, and of a model that is elsewhere."""
    memory_after_load_bytes: int | None = None
    anonymous_after_load_bytes: int | None = None
    file_backed_after_load_bytes: int | None = None
    memory_kinds_method: str | None = None
    """How anonymous and file-backed memory were told apart; None where they could not be."""
    limits: Limits | None = None
    energy_source: str | None = None
    """Such as 'rapl: package-0'; None where no counter was read."""
    no_energy: str | None = None
    """Why not."""
    device: DeviceProfile | None = None
    """The profile as it was then."""


@dataclass(frozen=True)
class Record:
    """One answered, or failed, question."""

    id: str
    sitting: int
    target: str
    """The right answer: a letter, or 'real' / 'forged'."""
    category: str
    answer: str | None = None
    """A letter, 'real' / 'forged', or 'Z' when the text holds no answer. None when the question failed."""
    method: str | None = None
    """How the answer was found: the matcher's own word, 'logits' or 'threshold'."""
    text: str | None = None
    """What the model wrote."""
    score: float | None = None
    """P(forged), in [0, 1]."""
    option_logprobs: dict[str, float] | None = None
    """Natural logarithm of the probability of each option's letter as the first token."""
    finish: str | None = None
    """'stop' or 'length': why the text ended; of a model behind an API also 'refused' and 'other'."""
    stages_ns: dict[str, int] = field(default_factory=dict)
    """read, preprocess, vision, prefill, decode, total. Total runs from the bytes to the last token; it leaves
    out read. Of a model behind an API: read, preprocess, retries, ttft, decode, and total, which is the request's."""
    tiles: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Tokens that the model gave, its end token included."""
    reused_tokens: int | None = None
    """Tokens of the prompt whose cache was there already; None where nothing is reused."""
    model: str | None = None
    """Which model a service says that it was."""
    attempts: int | None = None
    """Requests that the answer took, of a model behind an API."""
    peak_memory_bytes: int | None = None
    """The engine process's peak up to this answer; in mixed detection of all engines' processes, added up."""
    peak_anonymous_bytes: int | None = None
    """The same of its anonymous memory, which cannot be dropped without swap."""
    peak_file_backed_bytes: int | None = None
    """The same of its pages of mapped files. The two peaks need not have been at the same moment."""
    asked_unix_ns: int | None = None
    took_ns: int | None = None
    """When it was put to the engine's process, and from then until its answer was back. Of a question that was sent
    ahead (see `edgebench.ahead`): when the process began with it, and from then until it had the answer."""
    energy_j: float | None = None
    """Of the sitting's energy source over that time, idle power in it."""
    options: dict[str, str] | None = None
    forged_option: str | None = None
    """Binary questions: the letter that says 'forged'."""
    facts: dict[str, str] = field(default_factory=dict)
    """What the bench and the file's header say of the sample: generator, container, pixels, quality, ..."""
    trace: tuple[Call, ...] = ()
    """The steps of a protocol that takes several; `stages_ns` and tokens are then their sums."""
    error: str | None = None
    """Why the question could not be asked or answered."""
    not_asked: str | None = None
    """Why the question was left out: it does not suit this kind of model. It counts neither way."""

    def but(self, **changes: Any) -> Record:
        """A copy in which these fields differ: `dataclasses.replace` sets all fields again, in five times the time."""
        copy = object.__new__(Record)
        vars(copy).update(vars(self), **changes)
        return copy


_FIELDS = frozenset(f.name for f in dataclasses.fields(Record))


def to_json(value: Any) -> dict[str, Any]:
    """A record as plain data, without the fields that say nothing."""
    plain = vars(value) if isinstance(value, Record) else dataclasses.asdict(value)
    found = {k: v for k, v in plain.items() if v is not None and (v or v not in ({}, ()))}
    if "trace" in found:
        calls = map(dataclasses.asdict, found["trace"])
        found["trace"] = [{k: v for k, v in call.items() if v is not None and v != {}} for call in calls]
    return found


class Run:
    """A run folder, opened for reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = _read_header(folder)

    def lines(self) -> Iterator[Sitting | Record]:
        """Every complete line, in order. Of a question that was asked again the newest record counts, alone.

        Raises:
            RunError: a line in the middle is damaged.
        """
        path = self.folder / RECORDS
        place, again = str(path), asked_again(path)
        for number, kind, value in read_lines(path, again.lines):
            if kind == "sitting":
                yield build(Sitting, value, where=f"{place}:{number}", error=RunError)
            elif kind == "answer" and number not in again.outdated:
                yield _record(value, place, number)

    def records(self) -> Iterator[Record]:
        """The answers, in order."""
        return (line for line in self.lines() if isinstance(line, Record))

    def windows(self) -> Iterator[Window]:
        """Of an offline run, in order."""
        path = self.folder / RECORDS
        for number, kind, value in read_lines(path):
            if kind == "window":
                yield build(Window, value, where=f"{path}:{number}", error=RunError)

    def sittings(self) -> list[Sitting]:
        """The sittings, in order."""
        return [line for line in self.lines() if isinstance(line, Sitting)]


class Store:
    """A run folder, opened by one writer."""

    def __init__(self, folder: Path, stream: IO[bytes], lock: IO[bytes]) -> None:
        self.folder = folder
        self._stream = stream
        self._lock = lock

    @classmethod
    def create(cls, folder: Path, header: RunHeader) -> Store:
        """A new run.

        Raises:
            RunError: the folder holds something already, or cannot be written.
        """
        if folder.exists() and any(folder.iterdir()):
            raise RunError("is not empty", where=folder, hint="pass --resume to continue it, or another --output")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / (HEADER + ".partial")
            with partial.open("w", encoding="utf-8") as stream:
                json.dump(dataclasses.asdict(header), stream, indent=1, ensure_ascii=False)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(folder / HEADER)
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=folder) from error
        return cls._open(folder)

    @classmethod
    def resume(cls, folder: Path) -> Store:
        """An existing run, its torn last line cut off.

        Raises:
            RunError: there is none, it is damaged, or another process writes it.
        """
        _read_header(folder)
        store = cls._open(folder)
        try:
            cut_torn_line(folder / RECORDS, store._stream)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _open(cls, folder: Path) -> Store:
        try:
            lock = (folder / "lock").open("ab")
            if not take_lock(lock):
                lock.close()
                raise RunError("is being written by another edgebench", where=folder, hint="wait for it or stop it")
            stream = (folder / RECORDS).open("ab", buffering=0)
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=folder) from error
        return cls(folder, stream, lock)

    def append(self, line: Sitting | Record | Window) -> None:
        """Write one line; when this returns, a kill of the process no longer loses it."""
        kind = "window" if isinstance(line, Window) else "sitting" if isinstance(line, Sitting) else "answer"
        raw = to_line(kind, to_json(line))
        try:
            written = self._stream.write(raw)
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=self.folder / RECORDS) from error
        if written != len(raw):
            raise RunError(
                "the disk took only a part of a record",
                where=self.folder / RECORDS,
                hint="free some space, then --resume",
            )

    def close(self) -> None:
        """Bring the records to the disk and let go of the folder."""
        try:
            os.fsync(self._stream.fileno())
        finally:
            self._stream.close()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / HEADER).is_file()


def _record(value: dict[str, Any], place: str, number: int) -> Record:
    """As `build` makes it, which says what is wrong with one that is damaged; in a third of its time."""
    import msgspec

    if value.keys() <= _FIELDS and "trace" not in value:
        try:
            return msgspec.convert(value, Record)
        except msgspec.ValidationError:
            pass
    return build(Record, value, where=f"{place}:{number}", error=RunError)


def _read_header(folder: Path) -> RunHeader:
    path = folder / HEADER
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError("is not a run: it has no readable run.json", where=folder) from error
    except ValueError as error:
        raise RunError("is not JSON", where=path) from error
    if isinstance(value, dict) and value.get("format") != FORMAT:
        raise RunError(f"format {value.get('format')!r} is not {FORMAT!r}", where=path)
    return build(RunHeader, value, where=str(path), error=RunError)
