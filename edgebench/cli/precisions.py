"""`edgebench precisions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgebench.cli.output import Bar, json_option, show

if TYPE_CHECKING:
    from edgebench.manifest import Artifact

EVERY = ("fp32", "fp16", "bf16", "int8", "int4")
ONE_ANSWER = ("fp32", "fp16", "int8")
DIALECTS = ("ort", "portable")


@click.command()
@click.argument("model")
@click.option("--weights", metavar="PATH-OR-HUB-ID", help="The checkpoint, as for `edgebench export`.")
@click.option("--probe", metavar="FILE", type=click.Path(path_type=Path), help="Encoders: the linear layer.")
@click.option("--calibration", type=click.Path(path_type=Path), help="A folder of images: w8a8 beside int8.")
@click.option("--precision", "chosen", multiple=True, help="Only this one; may be repeated.")
@click.option("--dialect", "dialects", multiple=True, type=click.Choice(DIALECTS), help="Only this one.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder of the artifacts; by default MODEL-precisions."
)
@click.option("--speed", is_flag=True, help="Measure prefill and decode of each too, and name the fastest.")
@click.option("--engine", "engines", multiple=True, help="--speed: only this one; by default ort, openvino, genai.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="--speed: of all in turn.")
@click.option("--profile", default="cpu", show_default=True, help="--speed: what the engines may use.")
@json_option
def precisions(
    model: str,
    weights: str | None,
    probe: Path | None,
    calibration: Path | None,
    chosen: tuple[str, ...],
    dialects: tuple[str, ...],
    output: Path | None,
    speed: bool,
    engines: tuple[str, ...],
    rounds: int,
    profile: str,
    as_json: bool,
) -> None:
    """Export MODEL in every precision and dialect, and set sizes and parity with the checkpoint side by side.

    Artifacts that are in the folder already are taken as they are. A precision that misses its bound is a row that
    says so, and the exit code is that of a missed bound.

    With --speed each is also run, on every engine that takes it, in rounds that turn. The fastest prefill of those
    that agree with the checkpoint in 99 % of tokens is named, and written into the manifests with its figures.
    """
    from dataclasses import asdict

    from edgebench.engines.others import engine_class
    from edgebench.errors import ParityError, UsageError, did_you_mean
    from edgebench.export.run import export
    from edgebench.manifest import is_artifact, read_artifact
    from edgebench.recipes import load_recipe
    from edgebench.report.precisions import precision_tables, speed_tables
    from edgebench.speeds import speeds, write_choice

    recipe = load_recipe(model)
    simple = recipe.family in {"classifier", "encoder"}
    known = [*(ONE_ANSWER if simple else EVERY), *(["w8a8"] if calibration or recipe.family == "language" else [])]
    for name in chosen:
        if name not in known:
            raise UsageError(f"unknown precision {name!r}", hint=did_you_mean(name, known))
    if speed and recipe.family not in {"language", "llava", "llava_next"}:
        raise UsageError("--speed is for language models", hint="run --scenario latency measures a classifier")
    for name in engines:
        engine_class(name)
    folder = output or Path(f"{recipe.name}-precisions")
    found: dict[str, Artifact | str] = {}
    pairs = [
        (precision, dialect)
        for precision in (chosen or known)
        for dialect in (("portable",) if recipe.family == "classifier" else dialects or DIALECTS)
    ]
    with Bar("exporting") as bar:
        for precision, dialect in pairs:
            place = folder / f"{precision}-{dialect}"
            if is_artifact(place):
                found[place.name] = read_artifact(place)
                continue
            try:
                found[place.name] = export(
                    recipe,
                    precision=precision,  # type: ignore[arg-type] # one of the known
                    calibration=calibration if precision == "w8a8" else None,
                    weights=weights,
                    probe=probe,
                    dialect=dialect,  # type: ignore[arg-type] # one of DIALECTS
                    output=place,
                    say=lambda step, name=place.name: bar.say(f"{name}: {step}"),  # type: ignore[misc]
                    parity=True,
                    wrote=lambda done, total: bar.begin(total >> 20, done >> 20),
                )
            except ParityError as error:
                found[place.name] = str(error)
    tables, made = precision_tables(recipe.name, found), {n: a for n, a in found.items() if not isinstance(a, str)}
    measured = None
    if speed and made:
        with Bar("measuring") as bar:
            measured = speeds(made, engines, rounds, profile, bar)
        write_choice(made, measured)
        found |= {name: read_artifact(made[name].folder, verify=False) for name in made}
        tables += speed_tables(measured)
    value = {
        name: {"error": entry} if isinstance(entry, str) else {"folder": str(folder / name), **asdict(entry.manifest)}
        for name, entry in found.items()
    }
    show(tables, {"model": recipe.name, "precisions": value, "speed": measured}, as_json=as_json)
    missed = [name for name, entry in found.items() if isinstance(entry, str)]
    if missed:
        raise ParityError(f"{len(missed)} of {len(found)} missed their bound: {', '.join(missed)}")
