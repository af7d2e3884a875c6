"""The command line's manners: help, lists, wrong names, JSON, exit codes, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgebench.cli.main import COMMANDS
from edgebench.config import shipped_yaml
from edgebench.engines import ENGINES
from tests import twins
from tests.conftest import Cli, Exports


def test_help_says_what_it_does_and_how_it_ends(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    for word in (*COMMANDS, "Exit codes", "edgebench run --engine trt --bench forensics", "130"):
        assert word in done.out
    for command in COMMANDS:
        assert cli(command, "--help").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rnu",), "did you mean 'run'"),
        (("export", "lava-v1.5-7b"), "did you mean 'llava-v1.5-7b'"),
        (("export", "mesonet"), "mesonet-df"),
        (("run", "--engine", "ortt"), "did you mean 'ort'"),
        (("run", "--bench", "forensic"), "forensics"),
        (("run", "--engine", "null", "--matcher", "stict", "--data", "x"), "strict"),
        (("run", "--limit", "0"), "limit"),
        (("compare",), "RUNS"),
        (("export",), "MODEL"),
        (("run", "mesonet-df"), "edgebench export mesonet-df"),
        (("run", "--engine", "null", "--profile", "cup", "--bench", "images", "--data", "set"), "did you mean 'cpu'"),
    ],
)
def test_wrong_usage_is_2_and_names_the_nearest(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    (cli.folder / "set" / "real").mkdir(parents=True)
    (cli.folder / "set" / "real" / "a.png").write_bytes(twins.encoded(twins.picture(1)))
    done = cli(*arguments)
    assert done.code == 2, done.err
    assert says in done.err
    assert done.out == ""


def test_the_missions_lines_are_understood(cli: Cli, exports: Exports, tsv: Path) -> None:
    """Without weights, data or TensorRT each line says what to pass; with data it runs what was exported last."""
    done = cli("export", "llava-v1.5-7b", "--int8")
    assert done.code == 4
    assert "pass --weights" in done.err
    (cli.folder / "mine").symlink_to(exports("fp32"))
    data = tsv.rename(cli.folder / "renamed.tsv")
    done = cli("run", "--engine", "trt", "--bench", "forensics")
    assert done.code == 8
    assert "taking the newest export here: mine" in done.err
    assert "https://huggingface.co/datasets/Forensics-bench" in done.err
    assert "LMUData" in done.err
    (cli.folder / "LMUData").mkdir()
    data.rename(cli.folder / "LMUData" / "ForensicsBench.tsv")
    done = cli("run", "--engine", "trt", "--bench", "forensics", "--limit", 3)
    assert done.code == 7
    assert "--dialect portable" in done.err
    done = cli("run", "--engine", "ort", "--provider", "tensorrt", "--bench", "forensics", "--limit", 3)
    assert done.code == 7
    assert "no provider 'tensorrt'" in done.err
    assert "edgebench[gpu]" in done.err
    done = cli("run", "--engine", "ort", "--bench", "forensics", "--limit", 3, "--max-new-tokens", 2, "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["answered"] == 3


def test_lists(cli: Cli) -> None:
    assert set(shipped_yaml("recipes")) == {m["name"] for m in cli("models", "--json").json["models"]}
    assert cli("engines", "--json").json["engines"].keys() == ENGINES.keys()
    found = cli("benches", "--json").json
    assert set(found["matchers"]) == {"strict", "forensicsbench-2025", "vlmevalkit-2026", "mmfakebench-2024"}
    assert "forensics-mini" in found["benches"]
    assert "mesoinception-df" in cli("models").out


def test_json_is_one_object_and_everything_else_is_on_stderr(cli: Cli, tsv: Path) -> None:
    run = cli("run", "--engine", "null", "--data", tsv, "-o", "a", "--json")
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "b", "--json").code == 0
    for done in (run, cli("score", "a", "--json"), cli("report", "a", "--json"), cli("compare", "a", "b", "--json")):
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == 1
        value = done.json
        assert value["summary"].keys() >= {"questions", "answered", "unparsed", "failed", "accuracy"}
        for key in ("latency_ms", "memory", "artifact", "host"):
            assert key in value


def test_markdown_for_a_pull_request(cli: Cli, tsv: Path) -> None:
    rows = twins.rows(4)
    rows[0]["category"] = "<img src=x onerror=alert(1)>|`*_\u202e"
    twins.write_tsv(tsv, rows)
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "a").code == 1
    done = cli("report", "a", "--markdown")
    assert "### Answers" in done.out
    assert "<img" not in done.out
    assert "\u202e" not in done.out
    assert "\u202e" not in cli("report", "a").out


def test_a_run_that_is_none(cli: Cli) -> None:
    for command in ("report", "score", "compare"):
        done = cli(command, "nowhere", *(["nowhere"] if command == "compare" else []))
        assert done.code == 9
        assert "is not a run" in done.err
    (cli.folder / "old").mkdir()
    (cli.folder / "old" / "run.json").write_text(json.dumps({"format": "edgebench-run/0"}))
    assert "edgebench-run/0" in cli("report", "old").err
    (cli.folder / "old" / "run.json").write_text("{")
    assert cli("report", "old").code == 9


def test_a_single_run_is_no_comparison(cli: Cli, tsv: Path) -> None:
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "a").code == 0
    assert cli("compare", "a").code == 9


def test_control_c_keeps_what_was_answered(cli: Cli, exports: Exports) -> None:
    # So many questions that the run cannot end before the signal reaches it, however busy the machine is.
    tsv = twins.write_tsv(cli.folder / "ForensicsBench.tsv", twins.rows(600))
    process = subprocess.Popen(
        cli.command("run", exports("fp32"), "--data", tsv, "--max-new-tokens", 200, "-o", "out"),
        cwd=cli.folder,
        env=cli.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    path = cli.folder / "out" / "records.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path.exists() and path.read_bytes().count(b"\n") > 3):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"--resume" in err
    assert b"Traceback" not in err
    assert cli("report", "out", "--json").json["summary"]["answered"] >= 2


def test_a_reader_that_leaves_early(cli: Cli) -> None:
    shell = f"{sys.executable} -m edgebench models --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        cwd=cli.folder,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_a_folder_that_cannot_be_written(cli: Cli, tsv: Path) -> None:
    (cli.folder / "file").write_text("x")
    done = cli("run", "--engine", "null", "--data", tsv, "-o", "file/out")
    assert done.code == 9
    assert "cannot be written" in done.err


def test_without_the_extra_export_says_what_to_install(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\nu.find_spec = lambda n, p=None: None if n in {'torch', 'cv2'} else find(n, p)\n"
    )
    done = cli("export", "edgebench-demo", PYTHONPATH=str(tmp_path / "hide"))
    assert done.code == 11
    assert "edgebench[export]" in done.err
    done = cli("run", "--engine", "null", "--bench", "forensics-mini", PYTHONPATH=str(tmp_path / "hide"))
    assert done.code == 11
    assert "edgebench[demo]" in done.err
