"""TensorRT: plans are built for real by TensorRT-RTX, which needs no GPU; the run path works on host memory; and every
name of the API that is used exists in each release that is served."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines import trt, trt_api, trt_build, trt_loaded, trt_plans
from edgebench.engines.kept import MADE, is_whole
from edgebench.engines.ort import OrtEngine
from edgebench.engines.trt_api import PORTABLE, Api, find_api
from edgebench.engines.trt_device import Device
from edgebench.engines.trt_plans import FOLDER, PLAN, facts_of, made_for, plans, read_plan
from edgebench.engines.trt_shapes import capacity_of, profiles_of
from edgebench.errors import EngineError, SampleError
from edgebench.manifest import Artifact, read_artifact
from edgebench.profiles import DeviceProfile, load_profile
from tests.conftest import Cli, Exports, rarely
from tests.engines.host_device import HostDevice, HostPlan, host_loader

SMALL = DeviceProfile("small", "", context_tokens=48)


def rtx() -> Api:
    pytest.importorskip("tensorrt_rtx_bindings")
    return find_api("tensorrt_rtx")


def wanted(artifact: Artifact, api: Api) -> dict[str, dict[str, Any]]:
    m = artifact.manifest
    return {
        name: made_for(m.graphs[name], api.name, api.version, PORTABLE, profiles)
        for name, profiles in profiles_of(m, capacity_of(m, None)).items()
    }


def demo(precision: str, folder: Path) -> Artifact:
    """The demo model in the portable dialect, its parity not measured again."""
    from edgebench.export.run import export
    from edgebench.recipes import load_recipe

    recipe = load_recipe("edgebench-demo")
    return export(
        recipe,
        weights=None,
        precision=precision,
        dialect="portable",
        output=folder,
        parity=False,
        say=lambda step: None,
    )


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32, int8 and int4 differ in how weights are stored, which comes behind tracing: it is done once for them."""
    torch = pytest.importorskip("torch")
    from edgebench.export import streaming

    trace, known = streaming.onnx_program, {}

    def once(module: Any, arguments: tuple[Any, ...], **how: Any) -> Any:
        key = (type(module), next(module.parameters()).dtype)
        if key not in known:
            known[key] = trace(module, arguments, **how).model
        return torch.onnx.ONNXProgram(known[key].clone(), None)

    monkeypatch.setattr(streaming, "onnx_program", once)


@pytest.mark.usefixtures("traced_once")
def test_plans_of_the_demo_model_are_built_in_every_precision(tmp_path: Path) -> None:
    """fp32, fp16, int8 and int4; what was built is taken again, and what is unfinished is not."""
    api = rtx()
    sizes = {}
    for precision in ("fp32", "int8", "int4", "fp16"):
        artifact = demo(precision, tmp_path / precision)
        said: list[str] = []
        found, made = plans(artifact, wanted(artifact, api), said.append)
        assert made
        assert set(found) == {"vision", "embed", "decoder"}
        assert any("about" in line for line in said), "the estimate comes first"
        assert any(line.rpartition(" ")[2].count("/") == 1 for line in said), "and then the phases"
        for name, entry in found.items():
            facts = facts_of(entry)
            assert facts["build_s"] > 0
            estimated = trt_plans.estimate(artifact.manifest.graphs[name], api.name)[1]
            assert 0.3 < facts["peak_memory_bytes"] / estimated < 2, "the estimate is of the right size"
            assert facts["made_for"]["version"] == api.version
            assert len(read_plan(entry, "8.9")) == facts["bytes"][PLAN]
        assert plans(artifact, wanted(artifact, api), said.append) == (found, False)
        sizes[precision] = facts_of(found["decoder"])["bytes"][PLAN]
    assert sizes["fp32"] > sizes["int8"] > sizes["int4"]
    assert sizes["fp32"] > sizes["fp16"]


@pytest.fixture
def kept(exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Artifact, dict[str, Any], Path]:
    """The twin's embedding, the smallest graph: an artifact, what its plan is made for, and the plan's entry, built."""
    monkeypatch.setenv("EDGEBENCH_CACHE", str(tmp_path / "user-cache"))
    artifact = read_artifact(shutil.copytree(exports("fp32", "portable"), tmp_path / "artifact"))
    facts = {"embed": wanted(artifact, rtx())["embed"]}
    found, made = plans(artifact, facts, lambda line: None)
    assert made
    return artifact, facts["embed"], found["embed"]


def test_a_stale_plan_is_built_again(kept: tuple[Artifact, dict[str, Any], Path]) -> None:
    artifact, facts, entry = kept
    sidecar = json.loads((entry / MADE).read_text())
    (entry / MADE).write_text(json.dumps(sidecar | {"made_for": facts | {"version": "1.0"}}))
    found, made = plans(artifact, {"embed": facts}, lambda line: None)
    assert (found, made) == ({"embed": entry}, True)
    assert facts_of(entry)["made_for"] == facts
    with (entry / PLAN).open("r+b") as stream:
        stream.truncate(100)
    assert plans(artifact, {"embed": facts}, lambda line: None)[1], "a plan that is cut short is no plan"
    assert [p.name for p in (artifact.folder / FOLDER).iterdir() if p.is_dir()] == [entry.name]


def test_each_part_of_the_key_decides(kept: tuple[Artifact, dict[str, Any], Path]) -> None:
    artifact, facts, entry = kept
    assert is_whole(entry, facts, PLAN)
    graph, m = artifact.manifest.graphs["embed"], artifact.manifest
    shapes = profiles_of(m, capacity_of(m, None))["embed"]
    changes = {
        "graph": made_for(m.graphs["vision"], "tensorrt_rtx", facts["version"], PORTABLE, shapes),
        "weights": facts | {"weights": ["0" * 64]},
        "precision": facts | {"precision": "fp16"},
        "module": made_for(graph, "tensorrt", facts["version"], PORTABLE, shapes),
        "version": made_for(graph, "tensorrt_rtx", "1.7.1.117", PORTABLE, shapes),
        "compute_capability": made_for(graph, "tensorrt_rtx", facts["version"], "8.7", shapes),
        "shapes": made_for(graph, "tensorrt_rtx", facts["version"], PORTABLE, profiles_of(m, 32)["embed"]),
        "format": facts | {"format": 0},
    }
    assert made_for(graph, "tensorrt_rtx", facts["version"], PORTABLE, shapes) == facts
    assert changes.keys() == facts.keys()
    for name, changed in changes.items():
        assert changed[name] != facts[name]
        assert not is_whole(entry, changed, PLAN), name
        assert trt_plans.entry_of(entry.parent, "embed", changed) != entry, name


def test_a_plan_for_another_device_is_refused_before_it_is_read(
    kept: tuple[Artifact, dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, facts, entry = kept
    (entry / MADE).write_text(json.dumps({"made_for": facts | {"compute_capability": "8.7"}, "bytes": {}}))
    (entry / PLAN).unlink()
    with pytest.raises(EngineError, match=r"for compute capability 8\.7, this device has 8\.9"):
        read_plan(entry, "8.9")


def test_a_plan_gives_the_new_tokens_alone(exports: Exports) -> None:
    """What was the past with them behind it is no output any more: the engine keeps the cache."""
    api, artifact = rtx(), read_artifact(exports("fp32", "portable"))
    builder = api.trt.Builder(api.trt.Logger(api.trt.Logger.ERROR))
    network = api.network(builder)
    parser = api.trt.OnnxParser(network, api.trt.Logger(api.trt.Logger.ERROR))
    decoder = artifact.manifest.decoder
    assert decoder is not None
    assert parser.parse_from_file(str(artifact.path(artifact.manifest.graphs["decoder"].model)))
    trt_build._give_new_tokens_alone(api.trt, network)
    outputs = {t.name: tuple(t.shape) for t in map(network.get_output, range(network.num_outputs))}
    fresh = {f"new.{i}.{kind}" for i in range(decoder.layers) for kind in ("key", "value")}
    assert outputs.keys() == {"logits", *fresh}
    assert {outputs[name] for name in fresh} == {(1, decoder.kv_heads, -1, decoder.head_dim)}


def test_without_a_gpu_plans_are_built_and_kept(cli: Cli, exports: Exports, tsv: Path) -> None:
    rtx()
    if not no_gpu():
        pytest.skip("there is a GPU here")
    shutil.copytree(exports("fp32", "portable"), cli.folder / "artifact")
    for _ in range(2):
        done = cli("run", "artifact", "--engine", "trt", "--data", tsv, "-o", "run", "--resume")
        assert done.code == 7
        assert len(done.err.strip().splitlines()) == 1
        assert "running them needs an NVIDIA GPU" in done.err
        entries = {p: p.stat().st_mtime_ns for p in (cli.folder / "artifact" / FOLDER).glob("*/" + PLAN)}
        assert len(entries) == 3
    assert {p: p.stat().st_mtime_ns for p in entries} == entries
    done = cli("run", "artifact", "--engine", "trt", "--provider", "tensort", "--data", tsv, "-o", "other")
    assert done.code == 7
    assert "did you mean 'tensorrt'" in done.err
    done = cli("run", exports("fp32"), "--engine", "trt", "--data", tsv, "-o", "third")
    assert done.code == 7
    assert "--dialect portable" in done.err


def no_gpu() -> bool:
    try:
        Device().close()
    except EngineError:
        return True
    return False


def asymmetric(path: Path) -> None:
    """int8 with a zero point, as small classifiers have it."""
    from onnx import TensorProto, helper, save

    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="dequantize"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in "xy"]
    constants = [helper.make_tensor("scale", 1, [], [0.1]), helper.make_tensor("zero", TensorProto.INT8, [], [5])]
    save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)), str(path))


def test_what_tensorrt_cannot_read_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    asymmetric(tmp_path / "a.onnx")
    with pytest.raises(EngineError, match=r"int8 without zero points, and 'quantize' has one.*--fp16"):
        trt_build.build(rtx(), tmp_path / "a.onnx", [], tmp_path / "plan", tmp_path / "t", lambda line: None)


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 2e-5), rarely("fp16", 0.02)])
def test_the_run_path_gives_the_logits_of_onnx_runtime(
    exports: Exports, precision: str, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures, prompt and steps through the buffers, the fixed cache and its mask; a shorter prompt behind a longer."""
    artifact = read_artifact(exports(precision, "portable"))
    m = artifact.manifest
    device = HostDevice()
    monkeypatch.setattr(trt, "Device", lambda: device)
    monkeypatch.setattr(trt, "loader", host_loader(artifact))
    monkeypatch.setattr(trt, "plans", lambda a, facts, say: ({name: Path(name) for name in facts}, False))
    monkeypatch.setattr(trt, "find_api", lambda name: Api(type("Module", (), {"__version__": "10.3"}), "tensorrt_rtx"))
    monkeypatch.setattr(trt, "facts_of", lambda entry: {"build_s": 1.0})
    assert m.preprocess and m.text and m.text.images and m.decoder
    side, rng = m.preprocess.height, np.random.default_rng(0)
    tile = m.text.images.id
    with OrtEngine(artifact, load_profile("cpu"), {}) as ort, trt.TrtEngine(artifact, SMALL, {}) as ours:
        for tiles, words in ((2, 30), (1, 9), (0, 4)):
            pixels = rng.standard_normal((tiles, 3, side, side)).astype(np.float32)
            features = ort.see(pixels) if tiles else np.zeros((0, m.decoder.hidden_size), np.float32)
            if tiles:
                np.testing.assert_allclose(ours.see(pixels), features, atol=bound)
            half = len(features) // 2
            ids = np.array([1, *[tile] * half, 7, *[tile] * (len(features) - half), *rng.integers(6, 40, words)])
            ids = ids[: SMALL.context_tokens - 3] if len(features) == 0 else ids
            pair = [engine.prefill(ids, features) for engine in (ours, ort)]
            for token in (6, 9, 12):
                np.testing.assert_allclose(*pair, atol=bound, rtol=1e-4)
                assert len(ids) <= ours.capacity
                pair = [engine.step(token) for engine in (ours, ort)]
        facts = ours.facts()
        width = np.dtype(m.decoder.cache_dtype).itemsize
        assert (
            facts["cache_bytes"]
            == 2 * width * m.decoder.layers * m.decoder.kv_heads * m.decoder.head_dim * ours.capacity
        )
        assert facts["allocated_bytes"] == device.allocated
        json.dumps(facts)
        full = np.full(ours.capacity, 7)
        ours.prefill(full, np.zeros((0, 1), np.float32))
        with pytest.raises(SampleError, match="room for"):
            ours.step(7)
        with pytest.raises(SampleError, match="room for"):
            ours.prefill(np.full(ours.capacity + 1, 7), np.zeros((0, 1), np.float32))
    assert device.closed


def test_the_stand_ins_are_of_one_form_with_what_they_stand_for() -> None:
    for real, stand_in in ((Device, HostDevice), (trt_loaded.Plan, HostPlan)):
        public = {name for name in vars(real) if not name.startswith("_")}
        assert public <= set(vars(stand_in))


# The API by its names

CLASS_OF = {
    "builder": "Builder", "network": "INetworkDefinition", "parser": "OnnxParser", "error": "ParserError",
    "config": "IBuilderConfig", "profile": "IOptimizationProfile", "layer": "ILayer", "tensor": "ITensor",
    "fresh": "ITensor", "cache": "ITimingCache", "runtime": "Runtime", "engine": "ICudaEngine",
    "context": "IExecutionContext", "settings": "IRuntimeConfig", "trt": "module",
}  # fmt: skip
"""Variable in our code -> class of the API."""
GIVES = {"get_input": "ITensor", "get_output": "ITensor"}
ONLY_RTX = {
    ("Runtime", "get_engine_validity"), ("Runtime", "engine_header_size"), ("module", "EngineValidity"),
    ("module", "EngineInvalidityDiagnostics"), ("EngineValidity", "INVALID"),
    ("EngineInvalidityDiagnostics", "__members__"), ("ICudaEngine", "create_runtime_config"),
    ("IRuntimeConfig", "set_execution_context_allocation_strategy"),
    ("IRuntimeConfig", "dynamic_shapes_kernel_specialization_strategy"),
    ("module", "DynamicShapesKernelSpecializationStrategy"), ("DynamicShapesKernelSpecializationStrategy", "NONE"),
}  # fmt: skip
"""Asked of TensorRT-RTX alone, in trt_api."""
OURS = {
    "addresses", "api", "contextlib", "device", "errors", "file", "importlib", "job", "json", "log", "monitor", "now",
    "os", "partial", "plan", "presents", "profiles", "ranges", "self", "shapes", "str", "sys", "text", "threading",
    "time", "name",
}  # fmt: skip


def class_of(node: ast.expr) -> str | None:
    """The class of an expression of our code, where it is of the API; 'ours' where it is not."""
    if isinstance(node, ast.Name):
        return CLASS_OF.get(node.id, "ours" if node.id in OURS else None)
    if isinstance(node, ast.Attribute):
        if node.attr == "trt":
            return "module"
        base = class_of(node.value)
        return node.attr if base == "module" else "ours"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return GIVES.get(node.func.attr, "ours")
    return "ours"


def used() -> set[tuple[str, str, str]]:
    """File, class, name: all that our code takes from the API."""
    found = set()
    for module in (trt_api, trt_build, trt_loaded):
        path = Path(str(module.__file__))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                of = class_of(node.value)
                assert of is not None, f"{path.name}:{node.lineno}: whose is {ast.unparse(node)}?"
                if of != "ours" and node.attr not in {"__version__", "__init__"}:
                    found.add((path.name, of, node.attr))
    return found


def test_every_name_of_the_api_that_is_used_exists_in_each_release(reference_tables: Path) -> None:
    table = json.loads((reference_tables / "tensorrt_names.json").read_text())["names"]
    assert {name.split()[1] for name in table} == {"10.3.0", "11.4.0.106"}
    uses = used()
    assert {of for _, of, _ in uses} >= set(CLASS_OF.values())
    only = {(of, name) for _, of, name in uses if (of, name) in ONLY_RTX}
    assert only == ONLY_RTX
    assert {file for file, of, name in uses if (of, name) in ONLY_RTX} == {"trt_api.py"}
    for release, classes in table.items():
        missing = {(of, name) for _, of, name in uses if (of, name) not in ONLY_RTX} - {
            (of, name) for of, names in classes.items() for name in names
        }
        assert not missing, release
    module = rtx().trt
    for _, of, name in uses:
        assert hasattr(module if of == "module" else getattr(module, of), name), (of, name)


def test_every_call_of_cuda_exists() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime")
    tree = ast.parse(Path(str(trt.Device.__module__.replace(".", "/") + ".py")).resolve().read_text())
    calls = {
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant)
        and str(n.value).startswith("cuda")
        and " " not in str(n.value)
        and "." not in str(n.value)
    }
    taken = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.startswith("cuda")}
    assert len(calls) >= 12
    for name in calls | taken:
        places = (runtime, runtime.cudaMemcpyKind, runtime.cudaDeviceAttr, runtime.cudaError_t)
        assert any(hasattr(place, name) for place in places), name
