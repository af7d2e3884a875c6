"""`edgebench export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from edgebench.cli.output import Bar, json_option, show

if TYPE_CHECKING:
    from edgebench.recipes import Precision


@click.command()
@click.argument("model")
@click.option("--weights", metavar="PATH-OR-HUB-ID", help="The checkpoint: a file, a folder or owner/name on the hub.")
@click.option(
    "--probe",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encoders: the linear layer on the features, weight [1, D] or [2, D] and bias (.safetensors, .npz, .pth).",
)
@click.option(
    "--vision-tower",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="LLaVA in its original or XTuner's layout: the CLIP checkpoint, where the folder has none.",
)
@click.option(
    "--language",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="LLaVA in XTuner's layout: the language model, where the folder has none.",
)
@click.option("--fp32", "precision", flag_value="fp32", default=True, help="Weights as they are (the default).")
@click.option("--fp16", "precision", flag_value="fp16", help="Half precision.")
@click.option(
    "--bf16", "precision", flag_value="bf16", help="Language models: stored in bfloat16, computed in float32."
)
@click.option(
    "--int8",
    "precision",
    flag_value="int8",
    help="int8 weights; with --calibration the same as --w8a8.",
)
@click.option(
    "--w8a8",
    "precision",
    flag_value="w8a8",
    help="int8 weights and activations; what sees needs --calibration. The fastest prefill on CPUs with VNNI.",
)
@click.option("--int4", "precision", flag_value="int4", help="Language models: int4 layers, int8 vision and lm_head.")
@click.option(
    "--dialect",
    type=click.Choice(["ort", "portable"]),
    default="ort",
    show_default=True,
    help="ONNX Runtime's fused operators, or plain ONNX for any runtime.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="In int8: a folder of images that set the ranges of activations.",
)
@click.option(
    "--against",
    metavar="DATA",
    type=click.Path(path_type=Path),
    help="The evaluation pictures: refuse calibration images that look like one of them.",
)
@click.option(
    "--parity/--no-parity",
    default=None,
    help="Compare a language model with its checkpoint in float32; by default where that fits into memory.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The artifact's folder; by default MODEL-PRECISION here."
)
@click.option("--overwrite", is_flag=True, help="Replace an artifact that is there.")
@json_option
def export(
    model: str,
    weights: str | None,
    probe: Path | None,
    vision_tower: Path | None,
    language: Path | None,
    precision: Precision,
    dialect: Literal["ort", "portable"],
    calibration: Path | None,
    against: Path | None,
    parity: bool | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Export MODEL (a recipe's name, see `edgebench models`, or a recipe file) to ONNX.

    The exported graphs are compared with the checkpoint; an export that misses the recipe's bound fails.
    """
    from dataclasses import asdict

    from edgebench.export.run import export as export_model
    from edgebench.recipes import load_recipe
    from edgebench.report.artifact import artifact_tables

    recipe = load_recipe(model)
    suffix = (
        "-portable" if dialect == "portable" and recipe.family not in {"classifier", "image_text_classifier"} else ""
    )
    folder = output or Path(f"{recipe.name}-{precision}{suffix}")
    with Bar("exporting") as bar:
        artifact = export_model(
            recipe,
            weights=weights,
            precision=precision,
            dialect=dialect,
            output=folder,
            say=bar.say,
            calibration=calibration,
            against=against,
            probe=probe,
            vision_tower=vision_tower,
            language=language,
            overwrite=overwrite,
            parity=parity,
            wrote=lambda done, total: bar.begin(total >> 20, done >> 20),
        )
    show(artifact_tables(artifact), {"folder": str(folder), "manifest": asdict(artifact.manifest)}, as_json=as_json)
    if not as_json:
        click.echo(folder)
