"""Engines: a manifest becomes something that answers. An engine is its file, one row here and one extra."""

ENGINES: dict[str, tuple[str, str]] = {
    "ort": ("edgebench.engines.ort:OrtEngine", "ONNX Runtime: CPU by default, any of its providers by --provider"),
    "trt": ("edgebench.engines.trt:TrtEngine", "TensorRT or TensorRT-RTX, plans built here (extras `trt`, `trt-rtx`)"),
    "null": ("edgebench.engines.null:NullEngine", "does nothing and answers 'A'; measures the harness itself"),
}
"""Name -> (class, summary)."""
DIALECTS = {"trt": "portable"}
"""Engine -> the only dialect of language models that it reads."""
