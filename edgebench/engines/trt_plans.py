"""Plans beside the artifact: which are needed, which are there, and building those that are not.

A plan lies in `.trt-cache/` beside the artifact, or in the user's cache where that folder cannot be written. It is for
one graph and precision, one module and version, one compute capability and its shapes; `made.json`, written last, says
so, with the seconds and the memory that the build took. When any of it changes the plan is built again.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from edgebench.engines.kept import (
    MADE,
    becoming,
    entry_of,
    find,
    finish,
    first_writable,
    is_whole,
    locked,
    places_of,
    sidecar_of,
    sweep,
)
from edgebench.engines.trt_api import PORTABLE
from edgebench.environment import available_memory_bytes
from edgebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgebench.engines.trt_shapes import Profile
    from edgebench.manifest import Artifact, Graph

FOLDER, PLAN = ".trt-cache", "plan.trt"
FORMAT = 1
"""Of what is built from a graph: another number builds all plans again."""
BASE_BYTES, BYTES_PER_BYTE = 260 << 20, 6.2
"""Memory of a build: of the builder itself, and for each byte of the graph and its weights."""
BASE_S, S_PER_MIB = 2.0, 0.09
"""Seconds of a build: of any, and for each MiB of the graph and its weights."""
SLOWER = {"tensorrt": 10.0, "tensorrt_rtx": 1.0}
"""TensorRT tries kernels on the device while it builds; RTX does not."""


def made_for(
    graph: Graph, module: str, version: str, compute_capability: str, profiles: tuple[Profile, ...]
) -> dict[str, Any]:
    """All that decides a plan. The graph file does not say its weights, so both hashes are needed."""
    return {
        "format": FORMAT,
        "graph": graph.model.sha256,
        "weights": [fact.sha256 for fact in graph.external],
        "precision": graph.precision,
        "module": module,
        "version": version,
        "compute_capability": compute_capability,
        "shapes": [{key: [list(shape) for shape in ranges] for key, ranges in p.items()} for p in profiles],
    }


def estimate(graph: Graph, module: str) -> tuple[float, int]:
    """Seconds and bytes of memory that building will take, roughly: fitted to builds that were measured."""
    return (
        SLOWER[module] * (BASE_S + S_PER_MIB * graph.bytes / 2**20),
        BASE_BYTES + int(BYTES_PER_BYTE * graph.bytes),
    )


def plans(
    artifact: Artifact, facts: Mapping[str, dict[str, Any]], say: Callable[[str], None]
) -> tuple[dict[str, Path], bool]:
    """Graph -> the entry with its plan, built where it is missing; and whether any was built now.

    Args:
        artifact: of the dialect 'portable'.
        facts: graph -> `made_for`.
        say: called with one line on what goes on.

    Raises:
        EngineError: one cannot be built: no disk, no memory, or TensorRT refuses.
    """
    places = places_of(artifact, FOLDER, "trt")
    found: dict[str, Path] = {}
    made = False
    for name, wanted in facts.items():
        entry = find(places, name, wanted, PLAN)
        if entry is None:
            entry = _make(artifact, name, wanted, places, say)
            made = True
        found[name] = entry
    return found, made


def read_plan(entry: Path, compute_capability: str) -> bytes:
    """The plan of an entry, refused before it is read when it is for another device.

    Raises:
        EngineError: it is, or it cannot be read.
    """
    own = str(facts_of(entry)["made_for"].get("compute_capability"))
    if own not in {PORTABLE, compute_capability}:
        raise EngineError(
            f"the plan is for compute capability {own}, this device has {compute_capability}",
            where=entry,
            hint="remove it, and it is built again",
        )
    try:
        return (entry / PLAN).read_bytes()
    except OSError as error:
        raise EngineError(f"cannot be read: {error.strerror or error}", where=entry / PLAN) from error


def facts_of(entry: Path) -> dict[str, Any]:
    """What the sidecar says.

    Raises:
        EngineError: there is none.
    """
    sidecar = sidecar_of(entry)
    if sidecar is None or not isinstance(sidecar.get("made_for"), dict):
        raise EngineError(f"has no readable {MADE}", where=entry, hint="remove it, and it is built again")
    return sidecar


def _make(
    artifact: Artifact, name: str, facts: dict[str, Any], places: tuple[Path, ...], say: Callable[[str], None]
) -> Path:
    """Build one plan in the first place that can be written."""
    graph = artifact.manifest.graphs[name]
    place = first_writable(places, "TensorRT's plans are kept", hint="set EDGEBENCH_CACHE to a folder with room")
    entry = entry_of(place, name, facts)
    with locked(place):
        if is_whole(entry, facts, PLAN):  # another process built it meanwhile
            return entry
        sweep(place, name, facts, same=("module", "compute_capability"))
        seconds, needed = estimate(graph, facts["module"])
        about = f"building {name} for {facts['module']} {facts['version']}"
        say(f"{about}: about {seconds:.0f} s and {needed / 2**20:.0f} MiB")
        _check_room(place, graph, needed, name)
        with becoming(entry) as partial:
            job = {
                "module": facts["module"],
                "model": str(artifact.path(graph.model).resolve()),
                "plan": str((partial / PLAN).resolve()),
                "timings": str((place / f"timings-{facts['version']}-{facts['compute_capability']}.bin").resolve()),
                "profiles": facts["shapes"],
            }
            took = _run(job, name, lambda doing: say(f"{about}: {doing}"))
            finish(partial, facts, [PLAN], build_s=took["seconds"], peak_memory_bytes=took["peak_memory_bytes"])
    return entry


def _check_room(place: Path, graph: Graph, needed: int, name: str) -> None:
    """Before a build that would fail at its end. The estimate is rough: memory is refused at half of it."""
    free = shutil.disk_usage(place).free
    if free < 2 * graph.bytes:
        raise EngineError(
            f"needs {2 * graph.bytes / 2**30:.1f} GiB for the plan of {name!r}, {free / 2**30:.1f} GiB are free",
            where=place,
            hint="free some space, or set EDGEBENCH_CACHE",
        )
    available = available_memory_bytes()
    if available is not None and available < needed / 2:
        raise EngineError(
            f"building {name!r} takes about {needed / 2**30:.1f} GiB of memory, {available / 2**30:.1f} GiB are there",
            hint="build on a machine with more, or end what else runs",
        )


def _run(job: dict[str, Any], name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Let a process of its own build, and pass on what it says."""
    command = [sys.executable, "-m", "edgebench.engines.trt_build", json.dumps(job)]
    last: dict[str, Any] = {}
    # It ends when its standard input does: when this process is gone. What native code writes to stderr is not ours.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        for line in child.stdout or ():
            last = json.loads(line) if line.startswith("{") else last
            if "doing" in last:
                say(last["doing"])
        code = child.wait()
    if "error" in last:
        raise EngineError(f"the graph {name!r}: {last['error']}")
    if "seconds" not in last:
        cause = f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        memory = ", as the kernel does when memory runs out" if code == -signal.SIGKILL else ""
        raise EngineError(
            f"the process that built {name!r} {cause}{memory}", hint="its last phase: " + str(last.get("doing", "none"))
        )
    return last
