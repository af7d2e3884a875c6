"""`edgebench profile`."""

from __future__ import annotations

from pathlib import Path

import click

from edgebench.cli.output import Bar, json_option, show


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("this-host.yaml"),
    show_default=True,
    help="Where the profile is written.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there; its budgets are kept.")
@click.option(
    "--threads", type=click.IntRange(1), help="Measure so many, and let engines use no more; all cores if left out."
)
@click.option("--list", "listed", is_flag=True, help="List the shipped profiles instead.")
@json_option
def profile(output: Path, overwrite: bool, threads: int | None, listed: bool, as_json: bool) -> None:
    """Measure this machine's CPU (memory bandwidth, operations by precision) and write it as a device profile.

    Best on a quiet machine; it takes some seconds. `--profile this-host.yaml` uses it in run, gate and estimate.
    """
    from dataclasses import asdict, replace

    from edgebench.config import shipped_yaml
    from edgebench.errors import UsageError
    from edgebench.profiles import load_profile, write_profile
    from edgebench.report.estimate import device_table, profile_table

    if listed:
        found = [load_profile(name) for name in shipped_yaml("profiles")]
        show([profile_table(found)], {"profiles": [asdict(p) for p in found]}, as_json=as_json)
        return
    if output.suffix not in {".yaml", ".yml"}:
        raise UsageError("should end in .yaml", where=output)
    if output.exists() and not overwrite:
        raise UsageError("exists already", where=output, hint="pass --overwrite, or another --output")
    budgets = load_profile(str(output)).budgets if output.exists() else None
    with Bar("measuring") as bar:
        from edgebench.host_peaks import measure

        measured = measure(output.stem, bar.say, threads)
    if budgets is not None:
        measured = replace(measured, budgets=budgets)
    write_profile(output, measured)
    show([device_table(measured)], {"file": str(output), "profile": asdict(measured)}, as_json=as_json)
    if not as_json:
        click.echo(output)
