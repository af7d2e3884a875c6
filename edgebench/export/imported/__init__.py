"""Folders that others exported, taken as they are: our manifest is written beside their graphs.

A layout is its file and one row of this table.
"""

LAYOUTS: dict[str, tuple[str, str]] = {
    "genai": ("edgebench.export.imported.genai:take", "genai_config.json"),
    "onnx-community": ("edgebench.export.imported.vision_language:take", "vision_encoder*.onnx or embed_tokens*.onnx"),
    "classifier": (
        "edgebench.export.imported.classifier:take",
        "model*.onnx with a config.json of ...ForImageClassification",
    ),
    "text-generation": (
        "edgebench.export.imported.text_generation:take",
        "model*.onnx or decoder_model_merged*.onnx with a config.json of ...ForCausalLM",
    ),
}
"""Layout -> (`take(request: ImportRequest) -> Manifest`, the files that it is known by)."""
