"""`edgebench pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from edgebench.cli.output import Bar, json_option, show


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The TSV file; by default SOURCE's name here.")
@click.option("--seed", default=0, show_default=True, help="Of everything that is drawn.")
@click.option(
    "--panel",
    type=click.IntRange(16, 4096),
    default=512,
    show_default=True,
    help="Longest side of a panel of a composite, in pixels. Pictures of binary and box questions stay as they are.",
)
@click.option("--square", is_flag=True, help="Pad panels to squares, as the demo model needs them (--panel 96).")
@click.option(
    "--wrong-masks",
    type=click.Choice(["others", "perturbed"]),
    default="others",
    show_default=True,
    help="Wrong mask candidates: masks of other pictures, or the true one perturbed, as published.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="A folder or CSV of calibration or training pictures: near-duplicates of them are reported.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@json_option
def pack(
    source: Path,
    output: Path | None,
    seed: int,
    panel: int,
    square: bool,
    wrong_masks: Literal["others", "perturbed"],
    against: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Turn SOURCE, a folder or a CSV file of your own pictures and videos, into a benchmark for --bench packed.

    \b
    A folder has real/, forged/TYPE/GENERATOR/ and, with the same names, masks/TYPE/GENERATOR/.
    A CSV has the columns file and label (real or forged), and may have forgery_type, generator, mask, caption,
    semantic (human or nonhuman), split and forged_frames (like 3-7 9); paths are relative to it. A clip is a
    video file or a folder of frames.
    """
    from importlib.util import find_spec

    from edgebench.errors import MissingExtraError

    if missing := [name for name in ("imagehash", "scipy") if find_spec(name) is None]:
        raise MissingExtraError(f"pack needs {' and '.join(missing)}", hint="pip install 'edgebench[pack]'")
    from edgebench.pack.asking import Panels
    from edgebench.pack.write import PackPlan
    from edgebench.pack.write import as_json as as_data
    from edgebench.pack.write import pack as pack_source
    from edgebench.report.packed import packed_tables

    target = output or Path(f"{source.resolve().stem}.tsv")
    plan = PackPlan(
        source=source,
        output=target,
        seed=seed,
        panels=Panels(panel, square),
        wrong_masks=wrong_masks,
        against=against,
        overwrite=overwrite,
    )
    with Bar("packing") as bar:
        packed = pack_source(plan, bar)
    value = as_data(plan, packed) | {"file": str(target)}
    show(packed_tables(packed), value, as_json=as_json)
    if not as_json:
        click.echo(target)
