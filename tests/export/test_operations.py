"""Operations of a graph, against counts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebench.export.operations import count
from edgebench.manifest import Decoder

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, INT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT8


def tensor(name: str, *shape: int, kind: int = FLOAT) -> Any:
    size = 1
    for side in shape:
        size *= side
    return helper.make_tensor(name, kind, shape, [0] * size)


def save(path: Path, nodes: list[Any], tensors: list[Any], **inputs: list[Any]) -> Path:
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    out = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    graph = helper.make_graph(nodes, "g", given, [out], initializer=tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


def test_a_classifier_by_hand(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["pixels", "w1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w2"], ["b"], group=8, pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["b", "w3"], ["c"], strides=[2, 2]),
        node("QuickGelu", ["c"], ["d"], domain="com.microsoft"),
        node("GlobalAveragePool", ["d"], ["e"]),
        node("Flatten", ["e"], ["f"]),
        node("MatMulNBits", ["f", "w4", "s4"], ["g"], domain="com.microsoft", K=4, N=6, bits=4, block_size=16),
        node("DequantizeLinear", ["w5", "s5"], ["w5f"]),
        node("Gemm", ["g", "w5f"], ["h"], transB=1),
        node("FusedMatMul", ["h", "w6"], ["i"], domain="com.microsoft", transB=1),
    ]
    tensors = [
        tensor("w1", 8, 3, 3, 3),
        tensor("w2", 8, 1, 3, 3),
        tensor("w3", 8, 4, 2, 2),
        tensor("w4", 6, 1, 8, kind=onnx.TensorProto.UINT8),
        tensor("s4", 6),
        tensor("w5", 5, 6, kind=INT8),
        tensor("s5"),
        tensor("w6", 2, 5),
    ]
    work = count(save(tmp_path / "m.onnx", nodes, tensors, pixels=["N", 3, 32, 32]), "classifier", "int8", None)
    products = [8 * 16 * 16 * 27, 8 * 16 * 16 * 9, 8 * 16 * 16 * 4 * 2 * 2, 4 * 6, 6 * 5, 5 * 2]
    assert work.operations_per_item == 2 * sum(products)
    assert work.weight_bytes == 4 * (216 + 72 + 128 + 6 + 1 + 10) + 48 + 30
    assert work.precision == "int8"
    loose = save(tmp_path / "loose.onnx", nodes, tensors, pixels=["N", 3, "H", 32])
    assert count(loose, "classifier", "int8", None).operations_per_item is None, "of no fixed size"
    nodes.insert(4, node("Unheard", ["d"], ["d2"], domain="nobody"))
    nodes[5] = node("GlobalAveragePool", ["d2"], ["e"])
    lost = count(save(tmp_path / "lost.onnx", nodes, tensors, pixels=["N", 3, 32, 32]), "classifier", "int8", None)
    assert lost.operations_per_item is None, "unknown, not less"


def test_a_decoder_by_hand(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input_ids"], ["x"]),
        node("MatMul", ["x", "qkv"], ["y"]),
        node("GroupQueryAttention", ["y", "", "", "", "", "", "", "cos", "sin"], ["z"], domain="com.microsoft", num_heads=4, kv_num_heads=2),
        node("MatMul", ["z", "o"], ["u"]),
        node("Gather", ["u", "logits_index"], ["v"], axis=1),
        node("Transpose", ["table"], ["head"]),
        node("MatMul", ["v", "head"], ["logits"]),
    ]  # fmt: skip
    tensors = [tensor("table", 100, 16), tensor("qkv", 16, 32), tensor("o", 16, 16), *(tensor(n, 9, 2) for n in ("cos", "sin"))]  # fmt: skip
    path = save(tmp_path / "d.onnx", nodes, tensors, input_ids=[1, "T"], logits_index=["K"])
    work = count(path, "decoder", "fp32", Decoder(1, 2, 4, 16, "float32"))
    assert work.operations_per_item == 2 * (16 * 32 + 16 * 16)
    assert work.operations_once == 2 * 16 * 100
    assert work.operations_per_pair == 4 * 4 * 4
    assert work.weight_bytes == 4 * (1600 + 512 + 256), "a tied table is multiplied too; cosines are looked up"
    assert work.operations(10, 55) == 10 * 1536 + 55 * 64 + 3200
    branch = helper.make_graph(nodes[1:2], "b", [], [helper.make_tensor_value_info("y", FLOAT, None)])
    other = helper.make_graph(nodes[1:2], "o", [], [helper.make_tensor_value_info("y", FLOAT, None)])
    either = [nodes[0], node("If", ["use_cache"], ["w"], then_branch=branch, else_branch=other)]
    merged = count(save(tmp_path / "f.onnx", either, tensors[:2], input_ids=[1, "T"]), "decoder", "fp32", None)
    assert (merged.operations_per_item, merged.weight_bytes) == (None, 4 * 512), "which branch runs is not known"
    embed = save(tmp_path / "e.onnx", nodes[:1], tensors[:1], input_ids=[1, "T"])
    assert count(embed, "embed", "fp16", None).weight_bytes == 0
