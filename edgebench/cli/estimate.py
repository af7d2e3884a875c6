"""`edgebench estimate`."""

from __future__ import annotations

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.argument("model")
@click.option("--profile", required=True, help="The device: a name (`edgebench profile --list`) or a YAML file.")
@click.option("--precision", help="Of a recipe: fp32 (the default), fp16, bf16, int8, int4, w8a8.")
@click.option("--tiles", type=click.IntRange(min=0), default=1, show_default=True, help="Of pictures in a question.")
@click.option("--text-tokens", type=click.IntRange(min=1), default=64, show_default=True, help="Of the prompt.")
@click.option("--output-tokens", type=click.IntRange(min=1), default=16, show_default=True, help="Of the answer.")
@json_option
def estimate(
    model: str,
    profile: str,
    precision: str | None,
    tiles: int,
    text_tokens: int,
    output_tokens: int,
    as_json: bool,
) -> None:
    """Whether MODEL (an artifact's folder, or a recipe) can fit a device, and what it cannot beat there.

    Nothing is run: the numbers are an estimate from the model's shapes and the device's peaks, and what is printed
    are bounds that no runtime can pass, not what one will reach.
    """
    from edgebench.errors import UsageError, did_you_mean
    from edgebench.estimate import estimate as estimated
    from edgebench.estimate import model_of
    from edgebench.export.precision import RULES
    from edgebench.profiles import load_profile
    from edgebench.report.estimate import estimate_tables

    if precision is not None and precision not in RULES:
        raise UsageError(f"unknown precision {precision!r}", hint=did_you_mean(precision, RULES))
    found = estimated(
        model_of(model, precision),
        load_profile(profile),
        tiles=tiles,
        text_tokens=text_tokens,
        output_tokens=output_tokens,
    )
    show(estimate_tables(found), found, as_json=as_json)
