"""Runs in the forms that others read. A form is its file, with `write(runs, target)`, and one row of this table."""

FORMS: dict[str, tuple[str, str]] = {
    "csv": ("edgebench.convert.tables:write_csv", "FILE: one row a question, with a header line"),
    "parquet": ("edgebench.convert.tables:write_parquet", "FILE: the same rows, typed (extra `report`)"),
    "vlmevalkit": (
        "edgebench.convert.vlmevalkit:write",
        "FOLDER: predictions and scores as VLMEvalKit lays them out (PRED_FORMAT=tsv)",
    ),
    "lm-eval": (
        "edgebench.convert.lm_eval:write",
        "FOLDER: results and samples as lm-evaluation-harness 0.4 writes them",
    ),
}
"""Name -> (writer, summary)."""
