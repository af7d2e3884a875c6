"""`edgebench run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgebench.cli.endpoint import endpoint_options, taken_from
from edgebench.cli.output import Bar, json_option, say, show
from edgebench.cli.sweep import sweep
from edgebench.errors import UsageError
from edgebench.records import Limits

LONGEST_S = 1e6


@click.command()
@click.argument("artifact", required=False)
@click.option("--engine", default="ort", show_default=True, help="The runtime; `edgebench engines` lists them.")
@click.option("--bench", default="forensics", show_default=True, help="The benchmark; `edgebench benches` lists them.")
@click.option("--data", type=click.Path(path_type=Path), help="The benchmark's file or folder.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The run's folder; by default a new one in runs/."
)
@click.option(
    "--resume", is_flag=True, help="Continue a run that was interrupted; begins a new one when there is none."
)
@click.option("--retry-failed", is_flag=True, help="Continue a run, and ask its failed samples again.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N samples.")
@click.option("--provider", help="ort: the execution provider, such as cpu, cuda or tensorrt.")
@click.option(
    "--profile",
    default="cpu",
    show_default=True,
    envvar="EDGEBENCH_PROFILE",
    help="The device profile: a name or a YAML file. cpu-busy is for a machine that does other work too.",
)
@click.option(
    "--scoring",
    type=click.Choice(["generate", "logits"]),
    default="generate",
    show_default=True,
    help="Greedy text and a matcher, or the likeliest option letter.",
)
@click.option(
    "--matcher",
    default="strict",
    show_default=True,
    help="How an answer's text is read; `edgebench benches` lists them.",
)
@click.option("--prompt-style", help="In place of the model's own; `edgebench benches` lists them.")
@click.option(
    "--image-path",
    type=click.Choice(["lossless", "official-jpeg75"]),
    default="lossless",
    show_default=True,
    help="official-jpeg75: one more JPEG pass, as in the published scores.",
)
@click.option(
    "--equalize",
    type=click.Choice(["png", "jpeg96"]),
    help="Encode every picture anew in this way before it is put, so that the files of both classes are alike; sizes "
    "and traces of an earlier compression stay. Not part of the timed work.",
)
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="In place of the model's own limit.")
@click.option(
    "--perturb",
    metavar="NAME:LEVEL",
    help="Perturb every picture: saturation, contrast, block, noise, blur, pixel (the published six), jpeg or h264, "
    "levels 1 to 5; saturation:3:fast is fast, at most one grey level off. Not part of the timed work.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(min=1),
    default=178_956_970,
    show_default=True,
    help="Pictures of more pixels are refused from their header.",
)
@click.option(
    "--warmup/--no-warmup", default=True, show_default=True, help="Ask the first question once before, untimed."
)
@click.option(
    "--scenario",
    type=click.Choice(["single-stream", "offline", "latency"]),
    default="single-stream",
    show_default=True,
    help="One question at a time with its latency; many at once (prompts of one length together): samples a second; or "
    "latency: synthetic inputs, no benchmark.",
)
@click.option(
    "--sweep",
    metavar="SIZES",
    help="latency: such as 'batch=1,2 images=1 prompt=128,512 output=1,16'; every combination is measured.",
)
@click.option(
    "--min-seconds",
    type=click.FloatRange(0, LONGEST_S),
    help="latency: measure each case for so long at least.  [default: 10]",
)
@click.option(
    "--min-count", type=click.IntRange(1, 1_000_000), help="latency: and so many times at least.  [default: 100]"
)
@click.option("--batch", type=click.IntRange(1, 4096), help="offline: the most questions in one call.  [default: 8]")
@click.option(
    "--reuse",
    is_flag=True,
    help="Questions about the same pictures as the one before take their features, and the cache of what the prompts "
    "begin with. Latencies are then those of such a sequence, and the report says so.",
)
@click.option(
    "--memory",
    type=click.Choice(["normal", "low"]),
    default="normal",
    show_default=True,
    help="low: weights stay on the disk, pre-packed once into a cache beside the artifact, and are mapped; the answers "
    "are the same. Engine ort, provider cpu.",
)
@click.option("--weights", help="Engine torch: the checkpoint, where it is not the recipe's own.")
@click.option(
    "--option",
    "engine_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the engine's own, such as hint=throughput; `edgebench engines` lists them.",
)
@click.option(
    "--protocol",
    help="mmfakebench: standard (one prompt; the default), mmd-agent (text, picture, match: six calls at most) or mixed "
    "(detectors in the agent's stages). Forensics-Bench: attribution (which of four models forged it). Any: robustness "
    "(clean, and six perturbations at five levels: 31 runs in the folder of -o).",
)
@click.option("--introductions", is_flag=True, help="attribution: a paragraph on each model before the question.")
@click.option(
    "--precisions",
    metavar="ARTIFACT",
    multiple=True,
    help="robustness: the same of this artifact too, side by side; may be repeated.",
)
@click.option(
    "--variant", metavar="NAME", help="Forensics-Bench: put the questions so; `edgebench benches` lists them."
)
@click.option(
    "--variants",
    metavar="NAMES",
    help="Compare these (names and commas, or all) with the plain way, paired: one run each in the folder of -o.",
)
@click.option(
    "--boxes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The boxes of the variant given-boxes: a CSV with id, x, y, width and height in pixels, and picture (from 0) "
    "where a question has several.",
)
@click.option(
    "--subset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Forensics-Bench: N questions, in proportion to its categories; the interval is of all questions.",
)
@click.option("--subset-seed", type=int, default=0, show_default=True, help="Another seed, another subset.")
@click.option("--prompts", help="mmfakebench: a YAML file of instructions in place of our own wording.")
@click.option(
    "--knowledge",
    metavar="SOURCE",
    help="mmd-agent: where entities are looked up: none (the default), wikipedia, the https address of a MediaWiki's "
    "api.php, a folder of articles, an SQLite FTS5 index, or the knowledge.jsonl of a run, which is frozen.",
)
@click.option("--text-detector", metavar="ARTIFACT", help="mixed: who decides the text stage; else ARTIFACT does.")
@click.option("--image-detector", metavar="ARTIFACT", help="mixed: the same of the picture.")
@click.option("--cross-detector", metavar="ARTIFACT", help="mixed: the same of their match.")
@click.option(
    "--detector-engine",
    metavar="ENGINE",
    help="mixed: what runs those three.  [default: the run's engine; ort where that one's model is elsewhere]",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, LONGEST_S, min_open=True),
    default=Limits.question_s,
    show_default=True,
    metavar="SECONDS",
    help="A question that takes longer is failed: the engine's process hangs, and is started again.",
)
@click.option(
    "--load-limit",
    type=click.FloatRange(0, LONGEST_S, min_open=True),
    default=Limits.load_s,
    show_default=True,
    metavar="SECONDS",
    help="The same of loading, with all that the engine builds for the device.",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=Limits.restarts,
    show_default=True,
    help="How often an engine's process that died is started again.",
)
@click.option(
    "--energy",
    metavar="SOURCE",
    default="auto",
    show_default=True,
    help="auto, rapl (CPU packages), nvml (an NVIDIA board), jetson (its INA rails), or FILE.csv of an external meter "
    "(columns time and watts), read when the run ends.",
)
@endpoint_options
@json_option
def run(
    artifact: str | None,
    engine: str,
    as_json: bool,
    time_limit: float,
    load_limit: float,
    restarts: int,
    precisions: tuple[str, ...],
    variants: str | None,
    **options: Any,
) -> int:
    """Ask ARTIFACT (a folder, or a recipe's name: its newest export here) a benchmark's questions.

    Without ARTIFACT the newest export in this folder is taken, or the embedded demo model where there is none.
    Every answer is on the disk before the next question is asked: a run that is killed loses nothing. (Of an engine that
    answers within 0.1 ms, which is asked ahead, the last 64 answers at most.)
    """
    from edgebench import pipeline
    from edgebench.artifacts import check_place, find_artifact
    from edgebench.benches import BENCHES
    from edgebench.engines.others import engine_class, offered
    from edgebench.metrics.summary import summarize
    from edgebench.plan import RunPlan
    from edgebench.records import Run
    from edgebench.registry import lookup
    from edgebench.report.tables import run_tables
    from edgebench.report.written import write_report

    engine_class(engine)
    lookup(BENCHES, options["bench"], what="bench")
    if (refused := offered().refused.get(engine)) is not None:
        say(f"{refused}; that one is used")
    endpoint = taken_from(options)
    check_place(engine, endpoint)
    chosen = find_artifact(artifact, engine, say)
    named = {stage: options.pop(f"{stage}_detector") for stage in ("text", "image", "cross")}
    beside = options["detector_engine"] or engine
    found = {stage: find_artifact(name, beside, say) for stage, name in named.items() if name}
    options["detectors"] = {stage: own for stage, own in found.items() if own is not None}
    limits = Limits(time_limit, load_limit, restarts)
    sizes, seconds, count = options.pop("sweep"), options.pop("min_seconds"), options.pop("min_count")
    if options["scenario"] == "latency":
        from edgebench.cli.latency import latency

        return latency(chosen, engine, limits, options, sizes or "", seconds, count, as_json=as_json)
    for name, value in (("--sweep", sizes), ("--min-seconds", seconds), ("--min-count", count)):
        if value is not None:
            raise click.UsageError(f"{name} is for --scenario latency")
    plan = RunPlan(artifact=chosen, engine=engine, limits=limits, endpoint=endpoint, **options)
    if options["protocol"] == "robustness" or variants is not None:
        return sweep(plan, [find_artifact(name, engine, say) for name in precisions], variants, as_json=as_json)
    if precisions:
        raise UsageError("--precisions is for --protocol robustness")
    with Bar(f"asking {chosen.manifest.name if chosen else endpoint.get('model', engine)}") as bar:
        folder = pipeline.run(plan, bar)
    summary = summarize(Run(folder))
    tables = run_tables(summary)
    write_report(folder, summary, tables)
    show(tables, summary | {"folder": str(folder)}, as_json=as_json)
    if not as_json:
        click.echo(folder)
    return 1 if summary["summary"]["failed"] else 0
