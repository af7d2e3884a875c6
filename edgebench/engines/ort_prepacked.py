"""Weights in the form that ONNX Runtime's CPU kernels compute with, written once and mapped from then on.

ONNX Runtime re-packs the weights of its kernels while it loads, into memory that cannot be dropped: for a language
model more than its file. Here a process of its own does that once per graph and writes the optimised graph with its
packed weights; a session on that copy maps them, so that the system may drop and read again what it needs.

A copy lies in `.ort-cache/` beside the artifact, or in the user's cache where that folder cannot be written. It is
for one graph, one version of ONNX Runtime and one kind of CPU; its `made.json`, written last, says which.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.environment import cpu_identity
from edgebench.errors import EngineError, one_line
from edgebench.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.manifest import Artifact, Graph

FOLDER = ".ort-cache"
MODEL, WEIGHTS, MADE = "model.onnx", "weights.bin", "made.json"
FORMAT = 1
M_MMAP_THRESHOLD, LARGE = -3, 1 << 20
"""glibc's mallopt, and bytes."""
NOT_PACKED = ("embed",)
"""Graphs whose weights no kernel packs: a table is read in place as it is."""
DISK_FACTOR = {True: 4.5, False: 2.5}
"""Bytes of a copy over those of its graph, at most: the weights and their packed form (2.2 measured for int4, 2.0 for
float32), twice as much where there is half precision (True), which kernels widen to float32 (3.8)."""


def prepacked(artifact: Artifact) -> tuple[dict[str, Path], bool]:
    """Graph -> its copy with packed weights, made where it is missing; and whether any was made now.

    Raises:
        EngineError: it cannot be made: no disk, no memory, or ONNX Runtime refuses.
    """
    found: dict[str, Path] = {}
    made = False
    for name, graph in artifact.manifest.graphs.items():
        if name in NOT_PACKED:
            continue
        facts = _made_for(graph)
        places = (artifact.folder / FOLDER, cache_folder() / "ort" / artifact.manifest_sha256[:16])
        known = next((p for place in places if (p := _entry(place, name, facts)) and _is_whole(p, facts)), None)
        if known is None:
            known = _make(artifact, name, facts, places)
            made = True
        found[name] = known / MODEL
    return found, made


def load_options(options: Any) -> None:
    """Settings of a session on a copy: nothing is optimised again, and no memory is kept between calls."""
    import onnxruntime

    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    lean_options(options)


def lean_options(options: Any) -> None:
    """No arena and no pattern: what a call took goes back when it ends."""
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False


def return_large_blocks() -> None:
    """Let the C library give every large block back to the system when it is freed (glibc; elsewhere nothing).

    glibc raises its threshold up to 32 MiB by itself and keeps what lies below it: of a 7B's prompt of 640 tokens
    that was 1.1 GiB, a block of activations for each layer.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def _made_for(graph: Graph) -> dict[str, Any]:
    """All that decides a copy. The graph file does not say its weights, so both hashes are needed."""
    import onnxruntime

    return {
        "format": FORMAT,
        "graph": graph.model.sha256,
        "weights": [fact.sha256 for fact in graph.external],
        "onnxruntime": onnxruntime.__version__,
        "cpu": cpu_identity(),
        "provider": "CPUExecutionProvider",
    }


def _entry(place: Path, name: str, facts: dict[str, Any]) -> Path:
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return place / f"{name}-{key}"


def _sidecar(entry: Path) -> dict[str, Any] | None:
    try:
        value = json.loads((entry / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _is_whole(entry: Path, facts: dict[str, Any]) -> bool:
    """Whether a copy was finished, is for these facts and has its files at their sizes."""
    sidecar = _sidecar(entry)
    if sidecar is None or sidecar.get("made_for") != facts or not isinstance(sidecar.get("bytes"), dict):
        return False
    try:
        return MODEL in sidecar["bytes"] and all(
            (entry / file).stat().st_size == size for file, size in sidecar["bytes"].items()
        )
    except OSError:
        return False


def _make(artifact: Artifact, name: str, facts: dict[str, Any], places: tuple[Path, ...]) -> Path:
    """Make one copy in the first place that can be written.

    Raises:
        EngineError: none can be, or it cannot be made.
    """
    graph = artifact.manifest.graphs[name]
    place = next((p for p in places if _writable(p)), None)
    if place is None:
        raise EngineError(
            "neither it nor the user's cache can be written, and low memory keeps packed weights there",
            where=places[0],
            hint="set EDGEBENCH_CACHE to a folder with room",
        )
    entry = _entry(place, name, facts)
    with _locked(place):
        if _is_whole(entry, facts):  # another process made it meanwhile
            return entry
        _sweep(place, name, facts)
        needed = int(graph.bytes * DISK_FACTOR[graph.precision in {"fp16", "bf16"}])
        free = shutil.disk_usage(place).free
        if free < needed:
            raise EngineError(
                f"needs {needed / 2**30:.1f} GiB for the packed weights of {name!r}, {free / 2**30:.1f} GiB are free",
                where=place,
                hint="free some space, or run without --memory low",
            )
        partial = entry.with_name(f"{entry.name}.{os.getpid()}.partial")
        try:
            _fill(partial, artifact.path(graph.model), name, facts)
            partial.rename(entry)
        except OSError as error:
            raise EngineError(f"cannot be written: {error.strerror or error}", where=place) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return entry


def _fill(partial: Path, model: Path, name: str, facts: dict[str, Any]) -> None:
    """Let a process of its own write the copy, bring it to the disk, and then say what it is."""
    partial.mkdir(parents=True)
    command = [sys.executable, "-m", "edgebench.engines.ort_prepacked", str(model.resolve()), str(partial.resolve())]
    # It ends when its standard input does: when this process is gone.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        said = b"" if child.stderr is None else child.stderr.read()
        code = child.wait()
    if code:
        lines = said.decode(errors="replace").strip().splitlines()
        cause = lines[-1] if lines else f"exit code {code}"
        if code == -signal.SIGKILL:
            cause = "its process was killed, as the kernel does when memory runs out"
        raise EngineError(
            f"the weights of {name!r} cannot be packed: {cause}",
            where=model,
            hint="packing takes the memory of a normal run, once; or run without --memory low",
        )
    sizes = {}
    for file in (partial / MODEL, partial / WEIGHTS):
        if file.exists():  # a graph of small weights alone has no second file
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            sizes[file.name] = file.stat().st_size
    with (partial / MADE).open("w", encoding="utf-8") as stream:
        json.dump({"made_for": facts, "bytes": sizes}, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())


def _sweep(place: Path, name: str, facts: dict[str, Any]) -> None:
    """Remove what is unfinished, and this graph's copies for this CPU that are of other weights or versions."""
    for old in place.glob(f"{name}-*"):
        sidecar = _sidecar(old)
        made_for = sidecar.get("made_for") if sidecar else None
        if not isinstance(made_for, dict) or made_for.get("cpu") == facts["cpu"]:
            shutil.rmtree(old, ignore_errors=True)


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with (place / "lock").open("ab"):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One maker at a time; the lock ends with its process."""
    with (place / "lock").open("ab") as stream:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _write_copy(model: Path, target: Path) -> None:
    """Load a graph as a normal run does and save it optimised, with its packed weights."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    lean_options(options)
    options.optimized_model_filepath = str(target / MODEL)
    for key, value in (
        ("optimized_model_external_initializers_file_name", WEIGHTS),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _main() -> None:
    model, target = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _write_copy(Path(model), Path(target))
    except Exception as error:  # ONNX Runtime raises its own untyped exceptions
        sys.exit(one_line(error))
    # The destructors of a session of several GB are not worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    _main()
