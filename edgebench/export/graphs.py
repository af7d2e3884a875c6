"""Tracing a torch module to ONNX and describing the file."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.manifest import FileFact, Graph, Quantization, TensorFact, file_fact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EXTERNAL_BYTES = 1 << 30
"""Weights above this go to a file beside the graph (protobuf ends at 2 GiB)."""


def onnx_program(
    module: Any,
    arguments: tuple[Any, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[Any, ...],
    opset: int,
    optimize: bool,
) -> Any:
    """What `trace` traces, as torch's own `ONNXProgram`.

    Raises:
        CheckpointError: the module cannot be traced.
    """
    import torch

    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                module,
                arguments,
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=tuple(dims(d) for d in dynamic),
                input_names=list(inputs),
                output_names=list(outputs),
                optimize=optimize,
                verbose=False,
            )
        except Exception as error:  # the exporter raises many kinds
            raise CheckpointError(f"{type(module).__name__} cannot be traced: {one_line(error)}") from error
    if program is None:
        raise CheckpointError(f"{type(module).__name__} cannot be traced")
    return program


def trace(
    module: Any,
    arguments: tuple[Any, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[Any, ...],
    opset: int,
) -> Any:
    """Export a torch module with `torch.onnx.export(dynamo=True)`.

    Args:
        module: in evaluation mode.
        arguments: example inputs; their dynamic sizes should be neither 0 nor 1.
        inputs: names of the graph's inputs.
        outputs: names of its outputs.
        dynamic: for each argument, axis -> True for the dynamic ones (a tuple of such for a variadic argument).
        opset: of the default domain.

    Returns:
        `onnx.ModelProto` without traces of the source code.

    Raises:
        CheckpointError: the module cannot be traced.
    """
    program = onnx_program(
        module, arguments, inputs=inputs, outputs=outputs, dynamic=dynamic, opset=opset, optimize=True
    )
    model = program.model_proto
    _strip(model)
    return model


def dims(axes: Any) -> Any:
    """Axes that are dynamic, as torch.export wants them."""
    import torch

    if isinstance(axes, tuple):
        return tuple(dims(a) for a in axes)
    return dict.fromkeys(axes, torch.export.Dim.DYNAMIC)


def _strip(model: Any) -> None:
    """Drop stack traces: most of a small graph's size, and paths of this machine."""
    del model.metadata_props[:]
    model.doc_string = ""
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        graph.doc_string = ""
        with contextlib.suppress(AttributeError):
            del graph.metadata_props[:]
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        value.doc_string = ""
        del value.metadata_props[:]


def save(model: Any, folder: Path, name: str, precision: str, quantization: Quantization | None = None) -> Graph:
    """Write `name`.onnx, with its weights beside it when they are large, and describe it.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written.
    """
    import onnx

    file, data = f"{name}.onnx", f"{name}.onnx.data"
    external = model.ByteSize() > EXTERNAL_BYTES
    try:
        onnx.save_model(model, str(folder / file), save_as_external_data=external, location=data if external else None)
    except OSError as error:
        raise CheckpointError(f"cannot be written: {error.strerror or error}", where=folder / file) from error
    extra: tuple[FileFact, ...] = (file_fact(folder, data),) if external else ()
    return Graph(
        model=file_fact(folder, file),
        precision=precision,
        opset=next(o.version for o in model.opset_import if o.domain in {"", "ai.onnx"}),
        inputs=tuple(tensor_fact(v) for v in model.graph.input),
        outputs=tuple(tensor_fact(v) for v in model.graph.output),
        external=extra,
        quantization=quantization,
    )


def tensor_fact(value: Any) -> TensorFact:
    """An input or output of an `onnx` graph."""
    import onnx

    kind = value.type.tensor_type
    shape = tuple(d.dim_param or int(d.dim_value) for d in kind.shape.dim)
    return TensorFact(name=value.name, dtype=str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape=shape)
