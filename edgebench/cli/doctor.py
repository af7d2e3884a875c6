"""`edgebench doctor`."""

from __future__ import annotations

import click

from edgebench.cli.output import json_option, show


@click.command()
@click.option(
    "--time-limit",
    type=click.FloatRange(0, 3600, min_open=True),
    default=90.0,
    show_default=True,
    metavar="SECONDS",
    help="An engine that has not answered by then is taken to hang.",
)
@json_option
def doctor(time_limit: float, as_json: bool) -> None:
    """Say what is installed, which engines can build and run here and why the others cannot, and what the host has.

    Each engine is looked at in a process of its own: a native library that crashes is a row of the table. Nothing is
    downloaded, and nothing is changed.
    """
    from edgebench.doctor import diagnose
    from edgebench.report.doctor import doctor_tables

    found = diagnose(time_limit)
    show(doctor_tables(found), found, as_json=as_json)
