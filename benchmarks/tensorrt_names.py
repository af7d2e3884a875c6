"""The names of TensorRT's Python API by release, for tests/reference/tensorrt_names.json.

The bindings are read from their wheels, of which the libraries are no part: empty stand-ins for those are compiled, so
that the module can be imported and its classes looked at. Nothing is called.

    pip download --no-deps --only-binary :all: tensorrt-cu12-bindings==10.3.0
    python benchmarks/tensorrt_names.py tests/reference/tensorrt_names.json *.whl
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CLASSES = (
    "Builder", "BuilderFlag", "ExecutionContextAllocationStrategy", "IBuilderConfig", "ICudaEngine", "IExecutionContext",
    "ILayer", "ILogger", "INetworkDefinition", "IOptimizationProfile", "IProgressMonitor", "ITensor", "ITimingCache",
    "LayerType", "Logger", "NetworkDefinitionCreationFlag", "OnnxParser", "ParserError", "Runtime",
)  # fmt: skip
STAND_INS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL", "createNvOnnxParser_INTERNAL", "getBuilderPluginRegistry",
    "getNvOnnxParserVersion", "getPluginRegistry", "initLibNvInferPlugins",
)  # fmt: skip
LOOK = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("tensorrt", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
names = lambda value: sorted(n for n in dir(value) if not n.startswith("_"))
found = {"module": names(module)} | {c: names(getattr(module, c)) for c in sys.argv[2].split(",")}
print(json.dumps(found))
"""


def names_of(wheel: Path, place: Path) -> dict[str, list[str]]:
    """Class -> its public names, and those of the module."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    module = next(place.glob("*/tensorrt.so"))
    needed = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
    source = place / "empty.c"
    source.write_text("\n".join(f"void *{name}(void) {{ return 0; }}" for name in STAND_INS))
    for library in {word for word in needed.replace("[", " ").replace("]", " ").split() if word.startswith("libnv")}:
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", place / library, source]
        subprocess.run(command, check=True)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, module, ",".join(CLASSES)],
        env={**os.environ, "LD_LIBRARY_PATH": str(place)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def main() -> None:
    target, *wheels = map(Path, sys.argv[1:])
    found = {}
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        with tempfile.TemporaryDirectory() as place:
            found[f"{name} {version}"] = names_of(wheel, Path(place))
    about = "public names of the classes in these wheels, by benchmarks/tensorrt_names.py"
    text = json.dumps({"source": about, "names": found}, indent=0, sort_keys=True)
    target.write_text(text.replace(",\n", ", ").replace("[\n", "[").replace("\n]", "]").replace("], ", "],\n") + "\n")


if __name__ == "__main__":
    main()
