"""Watches the machine while questions are asked: a thread that sleeps, and looks once a second.

It lives beside the engine's process, not in it, and each look goes to `conditions.jsonl` at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from edgebench import devices
from edgebench.errors import EdgebenchError, UsageError
from edgebench.host_files import host_root, usable_cpus
from edgebench.sensors import conditions, memory
from edgebench.sensors.energy import Unsupported, open_source
from edgebench.sensors.nvml import NoNvml, Nvml
from edgebench.sensors.observation import CONDITIONS, Observation
from edgebench.sensors.power_log import POWER, read_power_log, write_power_log

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from edgebench.sensors.energy import Source

PERIOD_S = 1.0
SOURCES = ("auto", "rapl", "nvml", "jetson")


def check_energy(wanted: str) -> None:
    """Refuse early what cannot be a source of energy.

    Raises:
        UsageError: an unknown source, or one that is not there; the reason is in it.
        DataError: the external meter's CSV is not there yet, or not one.
    """
    if wanted == "auto":
        return
    if wanted in SOURCES:
        try:
            source, _ = open_source(wanted, host_root(), gpu=True)
        except Unsupported as why:
            raise UsageError(f"--energy {wanted}: {why}", hint="pass another source, or leave --energy out") from why
        if source is not None:
            source.close()
    elif wanted.endswith(".csv"):
        read_power_log(Path(wanted))
    else:
        raise UsageError(f"unknown source of energy {wanted!r}", hint=f"known: {', '.join(SOURCES)}, or a file.csv")


def on_gpu(engine: str, provider: str | None) -> bool:
    """Whether an engine computes on an NVIDIA GPU."""
    return engine.startswith("trt") or any(w in (provider or "").lower() for w in ("cuda", "tensorrt", "nvtensor"))


class Watch:
    """A context manager for one sitting; it begins to look when it is entered."""

    def __init__(self, folder: Path, sitting: int, *, energy: str = "auto", gpu: bool = False) -> None:
        """Prepare; nothing is read yet.

        Args:
            folder: the run's.
            sitting: its number.
            energy: 'auto', 'rapl', 'nvml', 'jetson', or an external meter's CSV, which is read at the end.
            gpu: whether the engine runs on an NVIDIA GPU.
        """
        self._folder, self._sitting, self._energy, self._gpu_used = folder, sitting, energy, gpu
        self._root = host_root()
        self._cpus = usable_cpus()
        self._own = conditions.OwnTime(os.getpid())
        self._phase: Literal["before", "during"] = "before"
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._stream: IO[bytes] | None = None
        self._source: Source | None = None
        self._gpu: Nvml | None = None
        self.engine_pids: tuple[int, ...] = ()
        self.why_no_energy: str | None = None

    def __enter__(self) -> Self:
        self._stream = (self._folder / CONDITIONS).open("ab", buffering=0)
        self._stream.write(b"\n")  # ends a line that a kill tore
        self._begin_ns = time.time_ns()
        if self._energy in SOURCES:
            try:
                self._source, self.why_no_energy = open_source(self._energy, self._root, gpu=self._gpu_used)
            except Unsupported as why:
                self.why_no_energy = str(why)
        else:
            self.why_no_energy = f"read from {Path(self._energy).name} at the end"
        if self._gpu_used:
            with contextlib.suppress(NoNvml):
                self._gpu = Nvml()
        self.look()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True, name="edgebench-watch")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._source is not None:
            self._source.close()
        if self._stream is not None:
            self._stream.close()
        if self._energy not in SOURCES:
            with contextlib.suppress(EdgebenchError) if error is not None else contextlib.nullcontext():
                self._take_power_log()

    @property
    def energy_source(self) -> str | None:
        """Such as 'rapl: package-0, dram'; None where there is none, or it is an external meter's."""
        return None if self._source is None else f"{self._source.name}: {self._source.scope}"

    def begin(self, engine_pid: int | None) -> None:
        """Questions are about to be asked of a process, the first one or one that took its place."""
        self.engine_pids = () if engine_pid is None else (engine_pid,)
        if self._phase == "before":
            self.look()
            self._phase = "during"
            self.look()

    def mark(self) -> tuple[int, int, float | None]:
        """The moment, for `since`: Unix time, a clock that never goes back, both in ns, and joules."""
        joules = None if self._source is None else self._source.joules()
        return time.time_ns(), time.perf_counter_ns(), joules

    def since(self, mark: tuple[int, int, float | None]) -> dict[str, Any]:
        """Of a question, as a record keeps it: when it was put, how long it took here, and its joules."""
        unix, clock, before = mark
        took = time.perf_counter_ns() - clock
        after = None if self._source is None or before is None else self._source.joules()
        energy = None if before is None or after is None else round(after - before, 6)
        return {"asked_unix_ns": unix, "took_ns": took, "energy_j": energy}

    def look(self, *, last: bool = False) -> None:
        """One observation, now; none where it was not entered.

        Args:
            last: of the sitting, while the engine is still there: what is costly to read is read too.
        """
        if self._stream is None:
            return
        with self._lock:
            root = self._root
            own = self._own.seconds()
            gpu = self._gpu
            pids = self._own.pids() - {os.getpid()}
            seen = Observation(
                sitting=self._sitting,
                unix_ns=time.time_ns(),
                phase=self._phase,
                busy_s=conditions.busy_s(root, self._cpus),
                own_s=own,
                clock_mhz=conditions.clock_mhz(root),
                temperature_c=conditions.temperature_c(root),
                throttle_events=conditions.throttle_events(root),
                held_back=(*conditions.held_back(root), *(gpu.held_back() if gpu else ())),
                governor=devices.governor(root),
                power_mode=devices.nvpmodel(root),
                available_bytes=memory.available_bytes(root),
                cgroup_peak_bytes=memory.cgroup_peak_bytes(root),
                pss_bytes=memory.pss_bytes(Path("/proc"), self.engine_pids) if last and self.engine_pids else None,
                gpu_mhz=gpu.clock_mhz() if gpu else conditions.module_gpu_mhz(root),
                gpu_temperature_c=gpu.temperature_c() if gpu else None,
                gpu_process_bytes=gpu.process_bytes(pids) if gpu else None,
            )
            plain = {k: v for k, v in asdict(seen).items() if v is not None and v != ()}
            with contextlib.suppress(OSError):  # conditions are no reason to lose an answer
                self._stream.write(json.dumps(plain, separators=(",", ":")).encode() + b"\n")

    def _keep_looking(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.look()

    def _take_power_log(self) -> None:
        """The readings of this sitting, behind those of the sittings before, into the run's folder."""
        ours = read_power_log(Path(self._energy)).between(self._begin_ns / 1e9, time.time_ns() / 1e9)
        path = self._folder / POWER
        if path.exists():
            before = read_power_log(path)
            later = [k for k, moment in enumerate(ours.times) if not before.times or moment > before.times[-1]]
            ours.times[:] = before.times + [ours.times[k] for k in later]
            ours.watts[:] = before.watts + [ours.watts[k] for k in later]
        write_power_log(path, ours)
