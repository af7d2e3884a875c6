"""Weights in the form that ONNX Runtime's CPU kernels compute with, written once and mapped from then on.

ONNX Runtime re-packs the weights of its kernels while it loads, into memory that cannot be dropped: for a language
model more than its file. Here a process of its own does that once per graph and writes the optimised graph with its
packed weights; a session on that copy maps them, so that the system may drop and read again what it needs.

A copy lies in `.ort-cache/` beside the artifact, or in the user's cache where that folder cannot be written. It is
for one graph, one version of ONNX Runtime and one kind of CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.engines.kept import becoming, entry_of, find, finish, first_writable, is_whole, locked, places_of, sweep
from edgebench.environment import cpu_identity
from edgebench.errors import EngineError, one_line

if TYPE_CHECKING:
    from edgebench.manifest import Artifact, Graph

FOLDER = ".ort-cache"
MODEL, WEIGHTS = "model.onnx", "weights.bin"
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
        places = places_of(artifact, FOLDER, "ort")
        known = find(places, name, facts, MODEL)
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


def _make(artifact: Artifact, name: str, facts: dict[str, Any], places: tuple[Path, ...]) -> Path:
    """Make one copy in the first place that can be written.

    Raises:
        EngineError: none can be, or it cannot be made.
    """
    graph = artifact.manifest.graphs[name]
    place = first_writable(places, "low memory keeps packed weights", hint="set EDGEBENCH_CACHE to a folder with room")
    entry = entry_of(place, name, facts)
    with locked(place):
        if is_whole(entry, facts, MODEL):  # another process made it meanwhile
            return entry
        sweep(place, name, facts, same=("cpu",))
        needed = int(graph.bytes * DISK_FACTOR[graph.precision in {"fp16", "bf16"}])
        free = shutil.disk_usage(place).free
        if free < needed:
            raise EngineError(
                f"needs {needed / 2**30:.1f} GiB for the packed weights of {name!r}, {free / 2**30:.1f} GiB are free",
                where=place,
                hint="free some space, or run without --memory low",
            )
        with becoming(entry) as partial:
            _fill(partial, artifact.path(graph.model), name, facts)
    return entry


def _fill(partial: Path, model: Path, name: str, facts: dict[str, Any]) -> None:
    """Let a process of its own write the copy, bring it to the disk, and then say what it is."""
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
    # A graph of small weights alone has no second file.
    finish(partial, facts, [file for file in (MODEL, WEIGHTS) if (partial / file).exists()])


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
