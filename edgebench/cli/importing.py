"""`edgebench import`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import Bar, json_option, show


@click.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--recipe", help="How the model is asked, and its bounds; by default the layout's own (`edgebench models`)."
)
@click.option("--variant", default="", help="Of every graph: fp16, quantized, q4, ...; by default those without one.")
@click.option("--vision", help="Another variant for the vision encoder.")
@click.option("--embed", help="Another variant for the embedding.")
@click.option("--decoder", help="Another variant for the decoder.")
@click.option("--forged", multiple=True, help="A classifier's label that means forged, where its words do not say it.")
@click.option("--weights", type=click.Path(path_type=Path), help="The checkpoint's folder, to measure parity with.")
@click.option("--overwrite", is_flag=True, help="Replace a manifest that is there.")
@json_option
def import_(
    folder: Path,
    recipe: str | None,
    variant: str,
    vision: str | None,
    embed: str | None,
    decoder: str | None,
    forged: tuple[str, ...],
    weights: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Take FOLDER, which others exported, as it is: write our manifest beside its graphs.

    Four layouts are known by their files: onnxruntime-genai's (genai_config.json), onnx-community's vision-language
    models (vision_encoder, embed_tokens, decoder_model_merged), and optimum's image classification and text
    generation (model.onnx beside config.json). Files may have variants such as _quantized and _q4, and lie in onnx/.
    """
    from dataclasses import asdict
    from importlib.util import find_spec

    from edgebench.errors import MissingExtraError
    from edgebench.recipes import load_recipe

    missing = [name for name in ("onnx", "transformers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"import needs {', '.join(missing)}", hint="pip install 'edgebench[export]'")
    from edgebench.export.imported.folder import import_folder
    from edgebench.export.imported.request import ImportRequest
    from edgebench.report.artifact import artifact_tables

    parts = {"vision": vision, "embed": embed, "decoder": decoder}
    with Bar("importing") as bar:
        request = ImportRequest(
            folder=folder,
            say=bar.say,
            recipe=None if recipe is None else load_recipe(recipe),
            variant=variant,
            variants={part: own for part, own in parts.items() if own is not None},
            weights=weights,
            forged=forged,
        )
        artifact = import_folder(request, overwrite=overwrite)
    show(artifact_tables(artifact), {"folder": str(folder), "manifest": asdict(artifact.manifest)}, as_json=as_json)
    if not as_json:
        click.echo(folder)
