"""`edgebench explain`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import click

from edgebench.cli.output import Bar, json_option, show


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("sample")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="FILE.png: the map (by default explain-SAMPLE.png in the run's folder). FILE.md: what was asked and said.",
)
@click.option("--artifact", type=click.Path(path_type=Path), help="The run's artifact, where it is not found here.")
@click.option("--data", type=click.Path(path_type=Path), help="The run's benchmark file or folder.")
@click.option(
    "--method",
    type=click.Choice(["occlusion", "attention"]),
    default="occlusion",
    show_default=True,
    help="occlusion: the run's model is asked about covered pictures. attention: attention times gradient, of language "
    "models that see, by the checkpoint in torch, whichever engine the run was of.",
)
@click.option("--weights", help="Torch: the checkpoint, where it is not the recipe's own.")
@click.option("--profile", default="cpu", show_default=True, envvar="EDGEBENCH_PROFILE", help="The device profile.")
@click.option(
    "--grid",
    type=click.IntRange(2, 64),
    help="Cells along the picture's longer side; occlusion asks (N + 1) x (N + 1) questions of a square picture.  "
    "[default: 8, attention: 24]",
)
@json_option
def explain(
    run: Path,
    sample: str,
    output: Path | None,
    artifact: Path | None,
    data: Path | None,
    method: Literal["occlusion", "attention"],
    weights: str | None,
    profile: str,
    grid: int | None,
    as_json: bool,
) -> int:
    """Show what the answer to SAMPLE of RUN hangs on.

    A grey patch slides over the picture, and the run's model is asked again each time; the map shows by how much the
    log-probability of the answer's letter falls, or the log-odds of real against forged. With --method attention it
    shows the attention to each patch times its gradient, rolled out over the layers. Of an answer that took several steps, the steps are printed as Markdown.
    """
    from edgebench.errors import RunError, UsageError
    from edgebench.explain import Means, find_record
    from edgebench.explain import explain as map_of
    from edgebench.records import Run
    from edgebench.report.relevancy import relevancy_picture, said_markdown
    from edgebench.report.tables import Table

    opened = Run(run)
    record = find_record(opened, sample)
    ending = None if output is None else output.suffix.lower()
    if ending not in {None, ".png", ".md"}:
        raise UsageError(f"{output} is neither a .png nor a .md", hint="name the kind by the file's ending")
    if ending == ".md" or (record.trace and ending is None):
        text = said_markdown(record)
        if output is not None:
            try:
                output.write_text(text, encoding="utf-8")
            except OSError as error:
                raise RunError(f"cannot be written: {error.strerror or error}", where=output) from error
        shown = {"sample": sample, "markdown": text, "output": None if output is None else str(output)}
        if as_json:
            show([], shown, as_json=True)
        else:
            click.echo(text if output is None else output, nl=output is not None)
        return 0
    target = output or run / f"explain-{re.sub(r'[^A-Za-z0-9._-]+', '-', sample)[-80:].strip('.-') or 'sample'}.png"
    with Bar("covering parts") as bar:
        found = map_of(opened, record, Means(artifact, data, weights, profile, grid, method), bar)
    words = [
        f"{found.sample}: {found.answer} ({found.meaning}), {found.measure} {found.value:.3f}; right: {record.target}",
        f"by how much {found.measure} falls where a grey patch of {2 * found.cell} pixels lies; {found.questions} questions"
        if method == "occlusion"
        else f"attention times gradient of {found.measure}, rolled out over the layers, in torch",
    ]
    try:
        relevancy_picture(found.pictures, found.maps, found.cell, words).save(target)
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", where=target) from error
    value = {
        "sample": found.sample,
        "method": found.method,
        "answer": found.answer,
        "meaning": found.meaning,
        "measure": found.measure,
        "value": found.value,
        "recorded": found.recorded,
        "questions": found.questions,
        "cell_pixels": found.cell,
        "maps": [m.round(6).tolist() for m in found.maps],
        "output": str(target),
    }
    rows = (
        ("answer", f"{found.answer} ({found.meaning}); right: {record.target}"),
        (f"{found.measure} of it, now / in the run", f"{found.value:.4f} / {found.recorded:.4f}"),
        (
            "largest / smallest fall" if method == "occlusion" else "largest / smallest relevance",
            " / ".join(f"{v:+.4f}" for v in _ends(value["maps"])),
        ),
        ("questions", str(found.questions)),
        ("picture", str(target)),
    )
    colours = "red speaks for the answer, blue against it" if method == "occlusion" else "red is where it looked"
    note = f"{colours}; the map says what the answer hangs on, not where a forgery is"
    show([Table(f"What the answer hangs on: {sample}", ("", ""), rows, note)], value, as_json=as_json)
    return 0


def _ends(maps: object) -> tuple[float, float]:
    import numpy as np

    values = np.concatenate([np.ravel(m) for m in maps]) if isinstance(maps, list) else np.zeros(1)
    return float(values.max()), float(values.min())
