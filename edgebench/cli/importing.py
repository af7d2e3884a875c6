"""`edgebench import`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import Bar, json_option, show


@click.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--recipe", default="llava", show_default=True, help="How the model is asked; `edgebench models`.")
@click.option("--variant", default="", help="Of all three graphs: fp16, int8, q4, ...; by default those without one.")
@click.option("--vision", help="Another variant for the vision encoder.")
@click.option("--embed", help="Another variant for the embedding.")
@click.option("--decoder", help="Another variant for the decoder.")
@click.option("--weights", type=click.Path(path_type=Path), help="The checkpoint's folder, to measure parity with.")
@click.option("--overwrite", is_flag=True, help="Replace a manifest that is there.")
@json_option
def import_(
    folder: Path,
    recipe: str,
    variant: str,
    vision: str | None,
    embed: str | None,
    decoder: str | None,
    weights: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Take FOLDER, which others exported, as it is: write our manifest beside its graphs.

    The layout is that of onnx-community's vision-language models: vision_encoder, embed_tokens and
    decoder_model_merged, with variants such as _int8 and _q4, beside config.json and tokenizer.json.
    """
    from dataclasses import asdict
    from importlib.util import find_spec

    from edgebench.errors import MissingExtraError
    from edgebench.recipes import load_recipe

    missing = [name for name in ("onnx", "transformers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"import needs {', '.join(missing)}", hint="pip install 'edgebench[export]'")
    from edgebench.export.imported import import_folder
    from edgebench.report.artifact import artifact_tables

    parts = {"vision": vision, "embed": embed, "decoder": decoder}
    variants = {part: variant if own is None else own for part, own in parts.items()}
    with Bar("importing") as bar:
        artifact = import_folder(
            folder, load_recipe(recipe), variants=variants, weights=weights, say=bar.say, overwrite=overwrite
        )
    show(artifact_tables(artifact), {"folder": str(folder), "manifest": asdict(artifact.manifest)}, as_json=as_json)
    if not as_json:
        click.echo(folder)
