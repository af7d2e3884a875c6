"""Engines: a manifest becomes something that answers. An engine is its file, one row here and one extra."""

from typing import Literal

ENGINES: dict[str, tuple[str, str]] = {
    "ort": ("edgebench.engines.ort:OrtEngine", "ONNX Runtime: CPU by default, any of its providers by --provider"),
    "trt": ("edgebench.engines.trt:TrtEngine", "TensorRT or TensorRT-RTX, plans built here (extras `trt`, `trt-rtx`)"),
    "api": (
        "edgebench.engines.api:ApiEngine",
        "a chat endpoint by --base-url and --model: hosted models, vLLM, llama.cpp, Ollama (extra `api`)",
    ),
    "genai": (
        "edgebench.engines.genai:GenaiEngine",
        "onnxruntime-genai: language models of text alone, dialect ort (extra `genai`)",
    ),
    "openvino": (
        "edgebench.engines.ov:OpenVinoEngine",
        "OpenVINO, dialect portable: CPU by default, gpu or npu by --provider (extra `openvino`)",
    ),
    "torch": (
        "edgebench.engines.framework:TorchEngine",
        "the checkpoint itself in transformers, eager: the reference; cpu or cuda by --provider (extra `export`)",
    ),
    "null": ("edgebench.engines.null:NullEngine", "does nothing and answers 'A'; measures the harness itself"),
}
"""Name -> (class, summary)."""
DIALECTS: dict[str, Literal["ort", "portable"]] = {"trt": "portable", "openvino": "portable"}
"""Engine -> the only dialect of language models that it reads."""
