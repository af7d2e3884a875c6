"""TensorRT's Python API where its releases differ: TensorRT 10 (JetPack 6 has 10.3) and 11, and TensorRT-RTX.

All other calls are the same in the three; tests/reference/tensorrt_names.json has the names of each. The differences:

- typing: an option of a network in 10, the only way in 11 and RTX, where asking for it is deprecated;
- precision flags and INT8 calibrators: gone in 11, and used nowhere here, since Q/DQ nodes say the precision;
- timing caches: of TensorRT alone. RTX times nothing while it builds, and its calls are deprecated there;
- devices: a plan of TensorRT is for one compute capability; RTX's is for all from 8.0, and a call tells whether a plan
  suits this device;
- kernels: RTX compiles them when a plan is loaded, and for new shapes in the middle of a run unless it is told not to.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgebench.errors import EngineError, did_you_mean, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULES = {"tensorrt": ("tensorrt",), "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings")}
"""Name -> modules to import, the first that is there."""
PORTABLE = "portable"
"""In place of a compute capability: RTX's plans, for all devices from 8.0."""


@dataclass(frozen=True)
class Api:
    """One of the modules."""

    trt: Any
    name: str
    """'tensorrt' or 'tensorrt_rtx'."""

    @property
    def version(self) -> str:
        """Such as '10.3.0'."""
        return str(self.trt.__version__)

    @property
    def portable(self) -> bool:
        """Whether plans are built without a device, for many."""
        return self.name == "tensorrt_rtx"

    def network(self, builder: Any) -> Any:
        """A strongly typed network: every tensor has the type that the graph says."""
        typed = self.name == "tensorrt" and int(self.version.split(".")[0]) < 11
        flags = 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if typed else 0
        return builder.create_network(flags)

    @contextlib.contextmanager
    def timing(self, config: Any, file: Path) -> Iterator[None]:
        """Take the timings of earlier builds, and keep those of this one."""
        if self.portable:
            yield
            return
        cache = config.create_timing_cache(file.read_bytes() if file.exists() else b"")
        # False: timings of another device are no timings of this one.
        config.set_timing_cache(cache, False)
        yield
        partial = file.with_suffix(".partial")
        partial.write_bytes(bytes(cache.serialize()))
        partial.replace(file)

    def check(self, runtime: Any, plan: bytes, where: Path) -> None:
        """Refuse a plan that this device cannot run, from its header.

        Raises:
            EngineError: it cannot.
        """
        if not self.portable:
            return
        validity, why = runtime.get_engine_validity(plan[: runtime.engine_header_size])
        if validity == self.trt.EngineValidity.INVALID:
            reasons = [
                name
                for name, value in self.trt.EngineInvalidityDiagnostics.__members__.items()
                if int(why) & int(value)
            ]
            raise EngineError(
                f"this device cannot run the plan: {', '.join(reasons).lower() or 'no reason given'}",
                where=where,
                hint="TensorRT-RTX runs on GeForce and RTX GPUs of compute capability 8.0, 8.6, 8.9 and from 12.0",
            )

    def context(self, engine: Any) -> Any:
        """A context without memory of its own; no kernel is compiled for a new shape in the middle of a run."""
        user_managed = self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not self.portable:
            return engine.create_execution_context(user_managed)
        settings = engine.create_runtime_config()
        settings.set_execution_context_allocation_strategy(user_managed)
        settings.dynamic_shapes_kernel_specialization_strategy = self.trt.DynamicShapesKernelSpecializationStrategy.NONE
        return engine.create_execution_context(settings)


def find_api(wanted: str | None) -> Api:
    """The module that was asked for, else TensorRT where it is installed, else TensorRT-RTX.

    Raises:
        EngineError: it is not installed, or there is none of that name.
    """
    if wanted is not None and wanted not in MODULES:
        raise EngineError(f"the engine 'trt' has no provider {wanted!r}", hint=did_you_mean(wanted, MODULES))
    for name in [wanted] if wanted else MODULES:
        for module in MODULES[name]:
            try:
                return Api(importlib.import_module(module), name)
            except ModuleNotFoundError:
                continue
            except (ImportError, OSError, RuntimeError) as error:  # its libraries are missing, or of another CUDA
                raise EngineError(f"{module} is installed and does not load: {one_line(error)}") from error
    names = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}
    raise EngineError(
        f"{names[wanted] if wanted else 'neither TensorRT nor TensorRT-RTX'} is {'not ' if wanted else ''}installed",
        hint="JetPack brings TensorRT along; elsewhere pip install tensorrt, or pip install 'edgebench[trt,trt-rtx]'",
    )
