"""`edgebench run` as a person drives it: whole runs, broken samples, kills and resumes, dead engines."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from tests import twins
from tests.conftest import Cli, Exports


def answers(folder: Path) -> list[dict[str, Any]]:
    """The answer lines of a run, each of them complete JSON."""
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "answer"]


def test_a_whole_run_of_the_twin(cli: Cli, tsv: Path, exports: Exports) -> None:
    done = cli("run", exports("fp32"), "--data", tsv, "--max-new-tokens", 8, "-o", "out", "--json")
    assert done.code == 0, done.err
    assert done.err == "", "no progress bar where there is no terminal"
    value = done.json
    summary = value["summary"]
    assert (summary["questions"], summary["answered"], summary["failed"]) == (40, 40, 0)
    assert summary["complete"]
    assert 0 <= summary["accuracy"] <= 1
    assert set(value["latency_ms"]) >= {"preprocess", "vision", "prefill", "total", "ttft"}
    assert value["latency_ms"]["total"]["p50"] > 0
    assert value["memory"]["peak_bytes"] > 30_000_000
    assert value["memory"]["artifact_bytes"] == sum(
        f.stat().st_size for f in exports("fp32").iterdir() if f.name != "manifest.json"
    )
    assert value["artifact"]["parity"]["rows"]
    assert value["host"]["logical_cores"] >= 1
    assert value["scores"]["forensics"]["categories"] == 4
    records = answers(cli.folder / "out")
    assert [r["id"] for r in records] == [str(i) for i in range(40)]
    for record in records:
        stages = record["stages_ns"]
        parts = sum(stages[k] for k in ("preprocess", "vision", "prefill", "decode"))
        assert abs(parts - stages["total"]) < 1000
        assert record["option_logprobs"].keys() == record["options"].keys()
    report = json.loads((cli.folder / "out" / "report.json").read_text())
    assert report["summary"] == summary
    assert "Latency" in (cli.folder / "out" / "report.md").read_text()
    text = cli("report", "out")
    assert text.code == 0
    for word in ("accuracy", "unparsed", "TTFT", "p99", "VmHWM", "parity at export", "Scores by the five perspectives"):
        assert word in text.out


def test_logits_scoring_gives_every_question_a_letter(cli: Cli, tsv: Path, exports: Exports) -> None:
    done = cli("run", exports("fp32"), "--data", tsv, "--scoring", "logits", "-o", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["summary"]["unparsed"] == 0
    assert done.json["summary"]["methods"] == {"logits": 40}
    for record in answers(cli.folder / "out"):
        assert record["answer"] == max(record["option_logprobs"], key=record["option_logprobs"].get)
        assert "text" not in record
    refused = cli("run", exports("fp32"), "--data", tsv, "-o", "out", "--resume")
    assert refused.code == 9
    assert "scoring 'logits' -> 'generate'" in refused.err


def test_both_image_paths_and_styles_are_recorded(cli: Cli, tsv: Path, exports: Exports) -> None:
    seen = {}
    for path in ("lossless", "official-jpeg75"):
        done = cli(
            "run",
            exports("fp32"),
            "--data",
            tsv,
            "--scoring",
            "logits",
            "--image-path",
            path,
            "--limit",
            8,
            "-o",
            path,
            "--json",
        )
        assert done.code == 0, done.err
        assert done.json["settings"]["image_path"] == path
        seen[path] = [r["option_logprobs"] for r in answers(cli.folder / path)]
    assert seen["lossless"] != seen["official-jpeg75"], "one more JPEG pass changes what the model sees"
    assert cli("compare", "lossless", "official-jpeg75").code == 9
    assert cli("compare", "lossless", "official-jpeg75", "--anyway").code == 0
    assert cli("run", exports("fp32"), "--data", tsv, "--prompt-style", "lava").code == 2


def test_int8_and_both_dialects_answer_too(cli: Cli, tsv: Path, exports: Exports) -> None:
    runs = {}
    for precision, dialect in (
        ("fp32", "ort"),
        ("fp32", "portable"),
        ("int8", "ort"),
        ("int8", "portable"),
        ("fp16", "ort"),
    ):
        name = f"{precision}-{dialect}"
        done = cli("run", exports(precision, dialect), "--data", tsv, "--max-new-tokens", 8, "-o", name, "--json")
        assert done.code == 0, done.err
        runs[name] = [(r["id"], r["text"]) for r in answers(cli.folder / name)]
    assert runs["fp32-ort"] == runs["fp32-portable"], "the dialects say the same in fp32"
    done = cli("compare", "fp32-ort", "int8-ort", "int8-portable", "--json")
    assert done.code == 0, done.err
    fp32, int8, _ = done.json["runs"]
    assert int8["memory"]["artifact_bytes"] < fp32["memory"]["artifact_bytes"] / 2
    drift = {r["what"]: r["relative_rms"] for r in int8["artifact"]["parity"]["rows"]}
    assert 0.0005 < drift["prefill"] < 0.1


def test_broken_samples_are_records_and_the_run_goes_on(cli: Cli, exports: Exports) -> None:
    rows = twins.rows(12)
    rows[1]["image"] = twins.b64(b"this is no image at all, but it is long enough not to be an index of another row")
    rows[2]["image"] = twins.b64(twins.encoded(twins.picture(2))[:-40])
    rows[3]["answer"] = "E"
    rows[4]["category"] = "nonsense"
    rows[5]["image"] = "%%%" * 30
    rows[6]["image"] = "0"
    rows[7]["question"] = "Is <image> this </s> \u202e hostile? <script>alert(1)</script>"
    twins.write_tsv(cli.folder / "bad.tsv", rows)
    done = cli("run", exports("fp32"), "--data", "bad.tsv", "--max-new-tokens", 4, "-o", "out", "--json")
    assert done.code == 1
    assert (done.json["summary"]["questions"], done.json["summary"]["failed"], done.json["summary"]["answered"]) == (
        12,
        5,
        7,
    )
    errors = {r["id"]: r.get("error") for r in answers(cli.folder / "out")}
    assert "no image that can be decoded" in errors["1"]
    assert "cannot be decoded" in errors["2"]
    assert "none of the options" in errors["3"]
    assert "none of the 112" in errors["4"]
    assert "not base64" in errors["5"]
    assert errors["6"] is None
    assert errors["7"] is None
    assert cli("report", "out").code == 1
    assert cli("run", exports("fp32"), "--data", "bad.tsv", "--max-new-tokens", 4, "-o", "out", "--resume").code == 1
    assert len(answers(cli.folder / "out")) == 12


def test_the_null_engine_needs_nothing(cli: Cli, tsv: Path, exports: Exports) -> None:
    done = cli("run", "--engine", "null", "--data", tsv, "-o", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["artifact"] is None
    expected = sum(row["answer"] == "A" for row in twins.rows(40)) / 40
    assert done.json["summary"]["accuracy"] == expected
    done = cli("run", exports("fp32"), "--engine", "null", "--data", tsv, "-o", "with", "--json")
    assert done.json["summary"]["unparsed"] == 40, "the null engine knows nothing, and does not pretend to"


def test_score_again_by_another_matcher(cli: Cli, tsv: Path) -> None:
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "out").code == 0
    before = (cli.folder / "out" / "records.jsonl").read_bytes()
    for matcher in ("strict", "forensicsbench-2025", "vlmevalkit-2026"):
        done = cli("score", "out", "--matcher", matcher, "--json")
        assert done.code == 0
        assert done.json["settings"]["matcher"] == matcher
        assert done.json["summary"]["answered"] == 40
    assert (cli.folder / "out" / "records.jsonl").read_bytes() == before
    assert cli("score", "out", "--matcher", "nonsense").code == 2


def test_killed_at_ten_random_moments_and_resumed(cli: Cli, tsv: Path, exports: Exports) -> None:
    """SIGKILL of the whole command at random moments: every question is answered once, as without kills."""
    artifact = exports("fp32")
    arguments = ("run", artifact, "--data", tsv, "--max-new-tokens", 4, "-o", "out", "--resume")
    generator = random.Random(5)
    kills, counts = 0, [0]
    path = cli.folder / "out" / "records.jsonl"
    while kills < 10:
        process = cli.start(*arguments)
        # Wait until this sitting has written something, then kill it within its next answers.
        grown = counts[-1] + generator.choice([0, 0, 1, 2, 3])
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            size = len(path.read_bytes().splitlines()) if path.exists() else 0
            if size > grown:
                break
            time.sleep(0.002)
        time.sleep(generator.random() * 0.01)
        process.kill()
        _, err = process.communicate()
        assert process.returncode in {-signal.SIGKILL, 0}, err
        kills += 1
        counts.append(len(path.read_bytes().splitlines()))
    assert counts == sorted(counts)
    done = cli(*arguments, "--json")
    assert done.code == 0, done.err
    ids = [r["id"] for r in answers(cli.folder / "out")]
    assert sorted(ids, key=int) == [str(i) for i in range(40)], "each question exactly once"
    assert done.json["sittings"] >= 2
    assert "sittings" in " ".join(done.json["notes"])
    whole = cli("run", artifact, "--data", tsv, "--max-new-tokens", 4, "-o", "whole", "--json")
    assert whole.json["summary"]["accuracy"] == done.json["summary"]["accuracy"]
    assert {(r["id"], r["text"]) for r in answers(cli.folder / "out")} == {
        (r["id"], r["text"]) for r in answers(cli.folder / "whole")
    }


def test_a_torn_line_is_cut_and_a_damaged_one_is_named(cli: Cli, tsv: Path) -> None:
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "out").code == 0
    path = cli.folder / "out" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:20]) + lines[20][: len(lines[20]) // 2])
    assert cli("report", "out", "--json").json["summary"]["complete"] is False
    done = cli("run", "--engine", "null", "--data", tsv, "-o", "out", "--resume", "--json")
    assert done.code == 0, done.err
    assert [r["id"] for r in answers(cli.folder / "out")] == [str(i) for i in range(40)]
    path.write_bytes(b"".join(lines[:5]) + b"garbage\n" + b"".join(lines[5:]))
    for command in (("report", "out"), ("run", "--engine", "null", "--data", tsv, "-o", "out", "--resume")):
        done = cli(*command)
        assert done.code == 9
        assert "records.jsonl:6" in done.err


def test_two_writers_at_once(cli: Cli, tsv: Path, exports: Exports) -> None:
    arguments = ("run", exports("fp32"), "--data", tsv, "--max-new-tokens", 200, "-o", "out", "--resume")
    first = cli.start(*arguments)
    try:
        end = time.monotonic() + 60
        while not (cli.folder / "out" / "records.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.01)
        second = cli(*arguments)
        assert second.code == 9
        assert "being written by another" in second.err
    finally:
        first.kill()
        first.communicate()


def test_an_engine_that_dies_takes_one_answer_with_it(cli: Cli, tsv: Path, exports: Exports) -> None:
    """The engine's own process is killed in the middle: the run says so, starts it again and answers the rest."""
    process = cli.start("run", exports("fp32"), "--data", tsv, "--max-new-tokens", 100, "-o", "out")
    path = cli.folder / "out" / "records.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path.exists() and path.read_bytes().count(b"\n") > 3):
        time.sleep(0.01)
    workers = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _is_worker(p, process.pid)]
    assert len(workers) == 1
    os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    records = answers(cli.folder / "out")
    failed = [r for r in records if "error" in r]
    assert len(records) == 40
    assert len(failed) == 1
    assert "killed by SIGKILL" in failed[0]["error"]


def _is_worker(process: Path, parent: int) -> bool:
    try:
        status = (process / "status").read_text()
        command = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return f"PPid:\t{parent}\n" in status and b"spawn_main" in command


def test_resume_finds_its_own_run(cli: Cli, tsv: Path) -> None:
    first = cli("run", "--engine", "null", "--data", tsv, "--limit", 10, "--resume", "--json")
    assert first.code == 0, "nothing to resume is a new run"
    again = cli("run", "--engine", "null", "--data", tsv, "--limit", 10, "--resume", "--json")
    assert again.json["folder"] == first.json["folder"]
    other = cli("run", "--engine", "null", "--data", tsv, "--limit", 11, "--resume", "--json")
    assert other.json["folder"] != first.json["folder"]


def test_other_data_cannot_continue_a_run(cli: Cli, tsv: Path) -> None:
    assert cli("run", "--engine", "null", "--data", tsv, "-o", "out").code == 0
    other = twins.write_tsv(cli.folder / "other.tsv", twins.rows(41))
    done = cli("run", "--engine", "null", "--data", other, "-o", "out", "--resume")
    assert done.code == 9
    assert "other data" in done.err
    done = cli("run", "--engine", "null", "--data", tsv, "-o", "out")
    assert done.code == 9
    assert "--resume" in done.err


def test_images_with_a_yes_no_question(cli: Cli, exports: Exports) -> None:
    for label in ("real", "forged"):
        (cli.folder / "set" / label).mkdir(parents=True)
        for i in range(4):
            (cli.folder / "set" / label / f"{i}.png").write_bytes(twins.encoded(twins.picture(i)))
    (cli.folder / "set" / "real" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    done = cli(
        "run", exports("fp32"), "--bench", "images", "--data", "set", "--scoring", "logits", "-o", "out", "--json"
    )
    assert done.code == 1
    assert done.json["summary"]["failed"] == 1
    assert done.json["summary"]["answered"] == 8
    assert 0 <= done.json["scores"]["binary"]["auroc"] <= 1
    assert all(0 <= r["score"] <= 1 for r in answers(cli.folder / "out") if "error" not in r)
