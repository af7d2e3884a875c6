"""`edgebench`: the table of commands, and the one place where errors are printed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from edgebench import __version__
from edgebench.errors import EdgebenchError, did_you_mean, exit_codes, one_line

COMMANDS: dict[str, tuple[str, str]] = {
    "export": ("edgebench.cli.export:export", "Export a model to ONNX, checked against its source."),
    "precisions": (
        "edgebench.cli.precisions:precisions",
        "Export in every precision and set their parity side by side.",
    ),
    "import": ("edgebench.cli.importing:import_", "Take what others exported to ONNX, as it is."),
    "run": ("edgebench.cli.run:run", "Run a benchmark: accuracy, latency and memory in one run."),
    "score": ("edgebench.cli.score:score", "Score a run again, without inference."),
    "report": ("edgebench.cli.report:report", "Report a run."),
    "explain": ("edgebench.cli.explain:explain", "Show what an answer hangs on: a map over the picture, or its steps."),
    "compare": ("edgebench.cli.compare:compare", "Set runs side by side: what changed, and what it cost."),
    "estimate": ("edgebench.cli.estimate:estimate", "Whether a model can fit a device, and what it cannot beat there."),
    "gate": ("edgebench.cli.gate:gate", "PASS or FAIL of a run against a device's budgets."),
    "profile": ("edgebench.cli.profile:profile", "Measure this machine and write its device profile."),
    "runs": ("edgebench.cli.runs:runs", "List, filter and query runs."),
    "convert": (
        "edgebench.cli.convert:convert",
        "Write runs in the forms of other tools: CSV, Parquet, VLMEvalKit, lm-eval.",
    ),
    "pack": ("edgebench.cli.pack:pack", "Turn your own pictures and videos into a benchmark."),
    "doctor": ("edgebench.cli.doctor:doctor", "Say which engines can build and run here, and why the others cannot."),
    "models": ("edgebench.cli.listing:models", "List the recipes."),
    "engines": ("edgebench.cli.listing:engines", "List the engines."),
    "benches": ("edgebench.cli.listing:benches", "List the benchmarks, prompt styles and answer matchers."),
}
"""Command -> (where it is, summary)."""
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `--help` imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of the road."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest command in the error."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r} ({did_you_mean(args[0], COMMANDS)})", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands and exit codes."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl(
                [(str(code), meaning) for code, meaning in exit_codes()]
                + [(str(INTERRUPTED), "interrupted; a run can be resumed")]
            )


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="edgebench")
def cli() -> None:
    """Is a forgery detector still right, how fast and in how much memory, once it is compiled?

    \b
    edgebench export llava-v1.5-7b --int8          checkpoint -> quantized ONNX, checked against the source
    edgebench run --engine trt --bench forensics   accuracy, latency and memory in one run
    edgebench compare A B                          what int8 cost, on which forgeries, on which device
    """


def main() -> None:
    """The console script."""
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: list[str]) -> int:
    try:
        result = cli.main(args=arguments, prog_name="edgebench", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; what was answered is kept, and --resume continues it")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; give Python's own flush at exit somewhere to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except EdgebenchError as error:
        _say(str(error))
        return error.exit_code
    except Exception as error:
        if os.environ.get("EDGEBENCH_DEBUG"):
            raise
        _say(f"unexpected failure: {one_line(error)} (this is a bug; EDGEBENCH_DEBUG=1 shows where)")
        return EdgebenchError.exit_code
    return result if isinstance(result, int) else 0


def _say(text: str) -> None:
    click.echo(f"edgebench: {text}", err=True)
