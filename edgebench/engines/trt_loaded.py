"""A plan that is loaded: contexts, memory, shapes and addresses.

Read twice against NVIDIA's documentation: developer guide, "The Runtime Phase" (execute_async_v3 on a stream of our
own; every tensor has an address; an output may be read when the stream is done), "Working with Dynamic Shapes" (a
context keeps its profile; shapes are set before execution) and "User-Managed Memory" (one block of
device_memory_size_v2 for contexts that never work at once); Python API of IExecutionContext and ICudaEngine, 10.3,
11.4 and RTX 1.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.engines.trt_plans import PLAN, read_plan
from edgebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgebench.engines.trt_api import Api
    from edgebench.engines.trt_device import Device
    from edgebench.engines.trt_shapes import Shape


class Plan:
    """A plan that is loaded, with one context for each of its profiles."""

    def __init__(self, api: Api, runtime: Any, entry: Path, profiles: int, device: Device) -> None:
        """Load it.

        Raises:
            EngineError: it is for another device, or does not load.
        """
        data = read_plan(entry, device.compute_capability)
        api.check(runtime, data, entry)
        engine = runtime.deserialize_cuda_engine(data)
        if engine is None:
            raise EngineError("TensorRT does not load the plan", where=entry / PLAN, hint="remove it to build it again")
        self.scratch_bytes = int(engine.device_memory_size_v2)
        # TensorRT wants the runtime to outlive its engines, and those their contexts.
        self._runtime, self._engine, self._device = runtime, engine, device
        self._contexts = [api.context(engine) for _ in range(profiles)]
        for number, context in enumerate(self._contexts):
            if not context.set_optimization_profile_async(number, device.stream):
                raise EngineError(f"TensorRT refuses profile {number}", where=entry / PLAN)

    def lend(self, address: int, size: int) -> None:
        """Memory for what is computed between inputs and outputs; contexts that never work at once may share it."""
        for context in self._contexts:
            context.set_device_memory(address, size)

    def bind(self, profile: int, shapes: Mapping[str, Shape], addresses: Mapping[str, int]) -> None:
        """Say the shapes of inputs, and where inputs and outputs lie.

        Raises:
            EngineError: a shape is outside of the profile, or a tensor is unknown.
        """
        context = self._contexts[profile]
        for name, shape in shapes.items():
            if not context.set_input_shape(name, shape):
                raise EngineError(f"TensorRT refuses the shape {list(shape)} for {name!r}")
        for name, address in addresses.items():
            if not context.set_tensor_address(name, address):
                raise EngineError(f"the plan has no tensor {name!r}")

    def run(self, profile: int) -> None:
        """Queue one execution.

        Raises:
            EngineError: TensorRT refuses.
        """
        if not self._contexts[profile].execute_async_v3(self._device.stream):
            raise EngineError("TensorRT could not execute the plan")


def loader(api: Api | None, device: Device) -> Callable[[Path, int], Plan]:
    """Entry, number of profiles -> the plan, loaded.

    Raises:
        EngineError: there is no plan.
    """
    if api is None:
        raise EngineError("no plan was built")
    trt = api.trt
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    return lambda entry, profiles: Plan(api, runtime, entry, profiles, device)
