"""Export: a checkpoint becomes a portable artifact, checked against its source.

A model family is its file and one row of this table. Nothing here is needed to run an artifact.
"""

FAMILIES: dict[str, str] = {
    "classifier": "edgebench.export.classifier:export_classifier",
    "encoder": "edgebench.export.encoder:export_encoder",
    "text_classifier": "edgebench.export.text_classifier:export_text_classifier",
    "image_text_classifier": "edgebench.export.image_text_classifier:export_image_text_classifier",
    "llava": "edgebench.export.llava:export_llava",
    "llava_next": "edgebench.export.llava_next:export_llava_next",
    "language": "edgebench.export.language:export_language",
}
"""Family -> `export(request: ExportRequest) -> Manifest`, which writes the graphs into `request.folder`."""
