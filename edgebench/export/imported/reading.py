"""One ONNX file that others exported, read once: where it is, what it takes and gives, which weights it names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import source_from
from edgebench.errors import CheckpointError, one_line
from edgebench.export.graphs import tensor_fact
from edgebench.manifest import Graph, Source, file_fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PRECISIONS = {"fp16": "fp16", "int8": "int8", "uint8": "uint8", "quantized": "int8", "q8": "int8", "q4": "int4",
              "q4f16": "int4", "bnb4": "bnb4"}  # fmt: skip
"""Variant -> precision, as the publisher means it. Of a variant that is not here the graph itself is asked."""
_BLOCKS = {"MatMulNBits": 4, "GatherBlockQuantized": 4}
"""Operators with weights in blocks -> their bits where the operator does not state them."""
_ORT_ONLY = {"SimplifiedLayerNormalization"}
"""Operators of ONNX Runtime alone that stand in the default domain."""


@dataclass(frozen=True)
class ReadGraph:
    """A graph as the manifest describes it, and what else its file says."""

    graph: Graph
    fused: bool
    """It uses operators that only ONNX Runtime has."""
    in_place: bool
    """Its cache is GroupQueryAttention's own: past and present may be one buffer."""


def find(folder: Path, stems: tuple[str, ...], variant: str) -> Path:
    """The file of a graph, in the folder or in its `onnx/`: `STEM.onnx`, or `STEM_VARIANT.onnx`.

    Args:
        folder: of the layout.
        stems: the names that the layout gives the graph, the first one first.
        variant: empty for none.

    Raises:
        CheckpointError: it is not there; the error says which variants are.
    """
    places = (folder, folder / "onnx")
    names = [f"{stem}_{variant}.onnx" if variant else f"{stem}.onnx" for stem in stems]
    path = next((place / name for name in names for place in places if (place / name).is_file()), None)
    if path is None:
        there = sorted({p.name for place in places for stem in stems for p in place.glob(f"{stem}*.onnx")})
        hint = f"there is {', '.join(there)}; choose with --variant" if there else None
        raise CheckpointError(f"holds no {' or '.join(names)}", where=folder, hint=hint)
    return path


def read(folder: Path, path: Path, variant: str, *, inputs: set[str], outputs: set[str]) -> ReadGraph:
    """Read a graph without its weights.

    Args:
        folder: of the layout; weights lie inside it.
        path: of the ONNX file.
        variant: as the file's name says.
        inputs: what it must take.
        outputs: what it must give.

    Raises:
        CheckpointError: it is damaged, of another layout, or its weights are not in the folder.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own kinds
        raise CheckpointError(f"is no ONNX file: {one_line(error)}", where=path) from error
    takes, gives = tuple(map(tensor_fact, model.graph.input)), tuple(map(tensor_fact, model.graph.output))
    for wanted, found in ((inputs, takes), (outputs, gives)):
        missing = wanted - {f.name for f in found}
        if missing:
            raise CheckpointError(f"has no {', '.join(sorted(missing))}: it is of another layout", where=path)
    graphs = list(_graphs(model.graph))
    nodes = [*(n for g in graphs for n in g.node), *(n for f in model.functions for n in f.node)]
    weights = [tensor for g in graphs for tensor in g.initializer]
    external = []
    for data in sorted(_locations(weights)):
        beside = (path.parent / data).resolve()
        if not beside.is_relative_to(folder.resolve()) or not beside.is_file():
            raise CheckpointError(f"names the weights {data!r}, which are not in the folder", where=path)
        external.append(file_fact(folder, beside.relative_to(folder.resolve()).as_posix()))
    graph = Graph(
        model=file_fact(folder, path.relative_to(folder).as_posix()),
        precision=PRECISIONS.get(variant) or _precision(nodes, weights),
        opset=next((o.version for o in model.opset_import if o.domain in {"", "ai.onnx"}), 0),
        inputs=takes,
        outputs=gives,
        external=tuple(external),
    )
    fused = any(n.domain.startswith("com.microsoft") or n.op_type in _ORT_ONLY for n in nodes)
    kept = {name for n in nodes if n.op_type == "GroupQueryAttention" for name in n.output[1:]}
    present = {f.name for f in gives if f.name.startswith("present.")}
    return ReadGraph(graph=graph, fused=fused, in_place=bool(present) and present <= kept)


def fits(shape: tuple[int | str, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a graph's shape may be the wanted one: dynamic and unknown sizes fit, as does a wanted None."""
    return len(shape) == len(wanted) and all(
        isinstance(size, str) or size == 0 or want in {None, size} for size, want in zip(shape, wanted, strict=True)
    )


def source_of_graphs(graphs: Iterable[Graph], name: str) -> Source:
    """Of unknown weights: the graphs' own files stand for them."""
    files = {f.file: f.sha256 for g in graphs for f in (g.model, *g.external)}
    return source_from(files, name=name, parameters=None)


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph, and the branches inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _graphs(inner)


def _locations(weights: list[Any]) -> set[str]:
    import onnx

    return {
        entry.value
        for tensor in weights
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _precision(nodes: list[Any], weights: list[Any]) -> str:
    """Of the weights: the fewest bits of those in blocks, else the type that most of them are stored in."""
    import onnx

    bits = [_bits(node) for node in nodes if node.op_type in _BLOCKS]
    if bits:
        return f"int{min(bits)}"
    if any(node.op_type == "MatMulBnb4" for node in nodes):
        return "bnb4"
    kind = onnx.TensorProto
    names = {
        kind.FLOAT: "fp32", kind.FLOAT16: "fp16", kind.BFLOAT16: "bf16", kind.DOUBLE: "fp64", kind.INT8: "int8",
        kind.UINT8: "int8", kind.INT4: "int4", kind.UINT4: "int4", kind.FLOAT8E4M3FN: "fp8",
    }  # fmt: skip
    size: Counter[str] = Counter()
    for tensor in weights:
        if tensor.data_type in names:
            size[names[tensor.data_type]] += prod(tensor.dims)
    return size.most_common(1)[0][0] if size else "fp32"


def _bits(node: Any) -> int:
    stated = [int(a.i) for a in node.attribute if a.name == "bits"]
    return stated[0] if stated else _BLOCKS[node.op_type]
