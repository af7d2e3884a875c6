"""Building one plan, in a process of its own: its memory is its own, and a crash is no end of a run.

Read against NVIDIA's documentation: developer guide, "The Build Phase" (strongly typed networks, optimization
profiles, timing cache, progress monitor) and "Working with Quantized Types" (explicit Q/DQ, zero points of 0);
TensorRT-RTX, "CPU-Only AOT".
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.engines.trt_api import Api, find_api
from edgebench.environment import peak_memory_bytes
from edgebench.errors import EdgebenchError, EngineError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgebench.engines.trt_shapes import Profile

EVERY_S = 0.2
"""Between two lines of progress."""
FRESH = "new."
"""Instead of 'present.': keys and values of the call's own tokens alone."""


def build(
    api: Api, model: Path, profiles: list[Profile], plan: Path, timings: Path, say: Callable[[str], None]
) -> None:
    """Build a plan from an ONNX file.

    Args:
        api: the module.
        model: the graph; its weights lie beside it.
        profiles: shapes of each profile.
        plan: the file to write.
        timings: of earlier builds.
        say: called with the phase that goes on.

    Raises:
        EngineError: TensorRT does not read or does not build it.
    """
    trt = api.trt

    class Log(trt.ILogger):  # type: ignore[misc,name-defined] # the module is known when it runs
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.errors.append(message)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined] # as above
        """Called from several threads; the phases are a tree."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}
            self.next = 0.0

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.steps[phase_name] = num_steps

        def phase_finish(self, phase_name: str) -> None:
            self.steps.pop(phase_name, None)

        def step_complete(self, phase_name: str, step: int) -> bool:
            now = time.monotonic()
            if now >= self.next:
                self.next = now + EVERY_S
                say(f"{phase_name} {step + 1}/{self.steps.get(phase_name, step + 1)}")
            return True

    log, monitor = Log(), Monitor()
    builder = trt.Builder(log)
    network = api.network(builder)
    parser = trt.OnnxParser(network, log)
    say("reading the graph")
    if not parser.parse_from_file(str(model)):
        raise EngineError(_why(parser), where=model)
    _give_new_tokens_alone(trt, network)
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    for ranges in profiles:
        profile = builder.create_optimization_profile()
        for name, (least, usual, largest) in ranges.items():
            profile.set_shape(name, least, usual, largest)
        if config.add_optimization_profile(profile) < 0:
            raise EngineError(f"TensorRT refuses the shapes {ranges}", where=model)
    with api.timing(config, timings):
        built = builder.build_serialized_network(network, config)
    if built is None:
        cause = log.errors[0] if log.errors else "it gives no reason"
        raise EngineError(f"TensorRT cannot build it: {cause[:300]}", where=model)
    plan.write_bytes(built)


def _why(parser: Any) -> str:
    """What the parser could not read, in one line, with what to do where it is known."""
    errors = [parser.get_error(number) for number in range(parser.num_errors)]
    if not errors:
        return "TensorRT cannot read it"
    error = errors[0]
    text = error.desc()
    if "zero point" in text.lower() or "shiftIsAllZeros" in text:
        return (
            f"TensorRT takes int8 without zero points, and {error.node_name()!r} has one: its activations are "
            "asymmetric (export it with --fp16, or with --int8 and no --calibration, or run it with --engine ort)"
        )
    return f"TensorRT cannot read its node {error.node_name()!r} ({error.node_operator()}): {text[:200]}"


def _give_new_tokens_alone(trt: Any, network: Any) -> None:
    """Give keys and values of the call's own tokens in place of the past with them behind it.

    The engine keeps the cache, and puts the new ones into their place: nothing else of it is written.

    Raises:
        EngineError: the present is not made of the past and what follows it.
    """
    tensors = [network.get_output(number) for number in range(network.num_outputs)]
    presents = {tensor.name: tensor for tensor in tensors if tensor.name.startswith("present.")}
    if not presents:
        return
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        tensor = layer.get_output(0) if layer.num_outputs == 1 else None
        if tensor is None or tensor.name not in presents:
            continue
        name = tensor.name
        past = name.replace("present.", "past_key_values.")
        if layer.type == trt.LayerType.CONCATENATION and layer.num_inputs == 2 and layer.get_input(0).name == past:
            fresh = layer.get_input(1)
            network.unmark_output(tensor)
            network.mark_output(fresh)
            fresh.name = name.replace("present.", FRESH)
            del presents[name]
    if presents:
        raise EngineError(f"{next(iter(presents))!r} is not the past with the new tokens behind it")


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _main() -> None:
    """Take a job from the command line; lines of JSON on stdout say how it goes, the last one what it took."""
    job = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    begin = time.monotonic()
    try:
        files = [Path(job[key]) for key in ("model", "plan", "timings")]
        build(find_api(job["module"]), files[0], job["profiles"], files[1], files[2], lambda line: tell(doing=line))
    except EdgebenchError as error:
        tell(error=str(error))
    except Exception as error:  # TensorRT's bindings raise many kinds
        tell(error=f"TensorRT failed: {one_line(error)}")
    else:
        tell(seconds=round(time.monotonic() - begin, 3), peak_memory_bytes=peak_memory_bytes()[0])
    sys.stdout.flush()
    # The destructors of a builder of several GB are not worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    _main()
