"""Engines that die: segfaults, aborts, kills, hangs and memory limits in the middle of a run and while loading.

The engine is one of another package (tests/brittle), built, installed into a folder of its own and found by its entry
point. What kills it is the grey level of a picture.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from edgebench.export.manifests import stamped
from edgebench.manifest import Graph, Preprocess, Source, TensorFact, file_fact, write_manifest
from tests import twins
from tests.conftest import Cli, Result, path, rarely
from tests.test_run import answers


class Brittle:
    """`edgebench run` of the other package's engine on grey pictures."""

    def __init__(self, cli: Cli, site: Path) -> None:
        self.cli = cli
        cli.environment["PYTHONPATH"] = path(site)
        folder = cli.folder / "artifact"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"only the other engine reads it")
        graph = Graph(
            model=file_fact(folder, "model.onnx"),
            precision="fp32",
            opset=20,
            inputs=(TensorFact("pixel_values", "float32", ("batch", 3, 8, 8)),),
            outputs=(TensorFact("p_forged", "float32", ("batch",)),),
        )
        facts: dict[str, Any] = {"labels": ("real", "forged"), "parity": None, "source": Source("none", "0" * 64)}
        kinds = {"name": "grey", "family": "classifier", "dialect": "portable", "precision": "fp32"}
        pixels = Preprocess(kind="resize", height=8, width=8)
        write_manifest(folder, stamped(**kinds, **facts, graphs={"classifier": graph}, preprocess=pixels))

    def pictures(self, *greys: int) -> None:
        """Pictures '00.png', ... of these grey levels, in order."""
        (self.cli.folder / "set" / "real").mkdir(parents=True)
        for number, grey in enumerate(greys):
            picture = Image.new("RGB", (8, 8), (grey, grey, grey))
            (self.cli.folder / "set" / "real" / f"{number:02}.png").write_bytes(twins.encoded(picture))

    def arguments(self, *options: object) -> tuple[object, ...]:
        return ("run", "artifact", "--engine", "brittle", "--bench", "images", "--data", "set", "-o", "out", *options)

    def run(self, *options: object, **environment: str) -> Result:
        return self.cli(*self.arguments(*options), **environment)

    def errors(self) -> dict[str, str]:
        """Of the newest record of each picture."""
        newest = {Path(r["id"]).stem: r.get("error", "") for r in answers(self.cli.folder / "out")}
        return {name: error for name, error in newest.items() if error}


@pytest.fixture
def brittle(cli: Cli, site: Path) -> Brittle:
    return Brittle(cli, site)


def test_whatever_kills_the_engine_takes_one_answer_with_it(brittle: Brittle) -> None:
    brittle.pictures(1, 10, 2, 20, 30, 3, 40, 50, 4, 80, 5)
    done = brittle.run("--time-limit", 3, "--json", BRITTLE_API_KEY="sk-very-secret")
    assert done.code == 1, done.err
    assert (done.json["summary"]["answered"], done.json["summary"]["failed"]) == (5, 6)
    errors = brittle.errors()
    for name, says in {
        "01": "was killed by SIGSEGV",
        "03": "was killed by SIGABRT",
        "04": "was killed by SIGKILL",
        "06": "gave nothing for 3 s and was ended",
        "07": "ended with exit code 3",
        "09": "OwnError: 1 is not 2",
    }.items():
        assert says in errors.pop(name)
    assert not errors
    named = {i for row in done.json["summary"]["errors"] for i in row["ids"]}
    assert {"real/01.png"} <= named
    assert "sample 'real/03.png': the engine's process was killed by SIGABRT" in done.err
    assert "it is started again (1 of 10)" in done.err
    assert "its last words: terminate called after throwing an instance of 'std::bad_function_call'" in done.err
    assert "its last words: waiting for the device $BRITTLE_API_KEY" in done.err, "stdout is not on ours"
    assert "very-secret" not in (brittle.cli.folder / "out" / "records.jsonl").read_text()
    header = json.loads((brittle.cli.folder / "out" / "run.json").read_text())
    assert header["limits"] == done.json["limits"] == {"question_s": 3.0, "load_s": 7200.0, "restarts": 10}
    report = brittle.cli("report", "out").out
    for words in ("3 s a question, 7200 s to load, 10 restarts", "--retry-failed", "real/09.png"):
        assert words in report

    assert brittle.run("--resume").code == 1, "a failed question is not asked again unasked"
    assert len(answers(brittle.cli.folder / "out")) == 11
    calm = brittle.run("--retry-failed", "--json", BRITTLE_CALM="1")
    assert calm.code == 0, calm.err
    assert (calm.json["summary"]["questions"], calm.json["summary"]["answered"]) == (11, 11)
    assert calm.json["sittings"] == 2
    assert len(answers(brittle.cli.folder / "out")) == 17, "no line is changed"


def test_a_memory_limit_is_named(brittle: Brittle) -> None:
    brittle.pictures(1, 60, 2, 70, 3)
    command = ["bash", "-c", 'ulimit -v 4194304; exec "$@"', "limited", *brittle.cli.command(*brittle.arguments())]
    done = subprocess.run(
        command, cwd=brittle.cli.folder, env=brittle.cli.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    errors = brittle.errors()
    assert "SIGSEGV, under a limit of 4096 MiB of address space," in errors.pop("01")
    assert "not enough memory for this sample" in errors.pop("03")
    assert not errors


def test_restarts_are_bounded_and_what_was_answered_is_kept(brittle: Brittle) -> None:
    brittle.pictures(1, 20, 2, 10, 3, 10, 4)
    done = brittle.run("--restarts", 1)
    assert done.code == 7
    assert done.err.splitlines()[-1].startswith("edgebench: sample 'real/03.png': the engine's process was killed")
    assert "started again 1 times (--restarts)" in done.err
    assert "--retry-failed" in done.err
    assert [Path(r["id"]).stem for r in answers(brittle.cli.folder / "out")] == ["00", "01", "02", "03"]
    done = brittle.run("--restarts", 1, "--resume")
    assert done.code == 1, "the sample that ended the first sitting is not asked again, so this one comes to the end"
    assert brittle.errors().keys() == {"01", "03", "05"}


@pytest.mark.parametrize(
    ("way", "says", "started"),
    [
        ("abort", "std::bad_function_call", 3),
        ("hang", "gave nothing for 3 s", 1),
        rarely("raise_", "OwnError: 1 is not 2", 0),
    ],
)
def test_an_engine_that_does_not_load(brittle: Brittle, way: str, says: str, started: int) -> None:
    brittle.pictures(1, 2)
    limit = ("--load-limit", 3) if way == "hang" else ()
    done = brittle.run("--restarts", 2, *limit, BRITTLE_LOAD=way)
    assert done.code == 7
    assert says in done.err.splitlines()[-1]
    assert done.err.count("edgebench: loading: the engine's process") == started
    assert not answers(brittle.cli.folder / "out")
    done = brittle.run("--resume", "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["answered"] == 2


def test_a_hanging_engine_ends_with_the_run(brittle: Brittle) -> None:
    """The whole command is killed while its engine hangs: nothing of it is left behind."""
    brittle.pictures(1, 40)
    process = brittle.cli.start(*brittle.arguments())
    assert process.stderr is not None
    seen = b""
    while b"waiting for the device" not in seen:
        block = os.read(process.stderr.fileno(), 4096)
        assert block, seen
        seen += block
    children = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _parent(p) == process.pid]
    assert children
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 20
    while any(p.exists() for p in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [p for p in children if p.exists()]


def _parent(process: Path) -> int | None:
    try:
        status = (process / "status").read_text()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), None)


def test_engines_of_other_packages(brittle: Brittle, site: Path) -> None:
    damaged = brittle.cli.folder / "more" / "damaged-0.1.dist-info"
    damaged.mkdir(parents=True)
    (damaged / "METADATA").write_text("Metadata-Version: 2.1\nName: damaged\nVersion: 0.1\n")
    (damaged / "entry_points.txt").write_text("[edgebench.engines]\n../escape = a:B\nnull\n")
    twice = brittle.cli.folder / "more" / "twice-2.0.dist-info"
    twice.mkdir()
    (twice / "METADATA").write_text("Metadata-Version: 2.1\nName: twice\nVersion: 2.0\n")
    (twice / "entry_points.txt").write_text("[edgebench.engines]\nabsent = twice:Engine\n../escape = a:B\nfine = t:E\n")
    both = path(site, damaged.parent)
    listed = brittle.cli("engines", "--json", PYTHONPATH=both)
    assert listed.code == 0, listed.err
    assert {"brittle", "dead", "fine", "ort", "null"} <= listed.json["engines"].keys()
    assert listed.json["engines"]["brittle"] == "of the package edgebench-brittle 1.2"
    refused = listed.json["refused"]
    assert refused["ort"] == "edgebench-brittle 1.2: the name 'ort' is edgebench's own"
    assert "both offer an engine 'absent'" in refused["absent"]
    assert "is not NAME = PACKAGE.MODULE:CLASS" in refused["../escape"]
    assert [reason for name, reason in refused.items() if "damaged-0.1" in name and "cannot be read" in reason]

    brittle.pictures(1)
    for engine, code, says in (
        ("absent", 2, "is refused: edgebench-brittle 1.2 and twice 2.0"),
        ("fine", 7, "not installed: ModuleNotFoundError: No module named 't'"),
        ("dead", 7, "killed by SIGABRT while it loaded the artifact; its last words: symbol lookup error"),
        ("ort", 7, "the name 'ort' is edgebench's own; that one is used"),
    ):
        done = brittle.run("--engine", engine, "-o", engine, "--restarts", 0, PYTHONPATH=both)
        assert done.code == code, done.err
        assert says in done.err
