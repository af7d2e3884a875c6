"""Memory of a process by kind, as the system says it, and in the records of a run."""

from __future__ import annotations

import json
import mmap
import platform
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgebench.environment import HUGE_PAGES, TUNABLES, MemoryWatch, Resident, asking_for_huge_pages, cpu_identity
from tests.conftest import Cli, Exports
from tests.test_run import answers

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the kinds apart")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")


@linux
def test_a_block_that_came_and_went_is_in_the_peak() -> None:
    with MemoryWatch() as watch:
        before = watch.now().anonymous
        assert before is not None
        block = np.ones(64 * MIB, dtype=np.uint8)
        time.sleep(4 * watch.PERIOD_S)
        del block
        peak = watch.peak().anonymous
        assert peak is not None
        assert peak - before > 60 * MIB
        assert "50 ms" in str(watch.method)


@linux
def test_a_mapped_file_is_file_backed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (32 * MIB))
    with MemoryWatch() as watch, path.open("rb") as stream:
        before = watch.now()
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert sum(mapped[:: mmap.PAGESIZE]) > 0
            now = watch.now()
    assert before.file_backed is not None
    assert before.anonymous is not None
    assert now.file_backed is not None
    assert now.anonymous is not None
    assert now.file_backed - before.file_backed > 30 * MIB
    assert now.anonymous - before.anonymous < 8 * MIB


def test_unknown_stays_unknown() -> None:
    known = Resident(5, None)
    assert known | Resident() == known
    assert known | Resident(4, 2) == Resident(5, 2)
    closed = MemoryWatch()
    assert closed.now() == Resident()
    assert closed.peak() == Resident()
    assert closed.method is None


def test_the_cpu_has_one_identity() -> None:
    assert cpu_identity() == cpu_identity()
    assert cpu_identity().count(", ") >= 2


@glibc
@pytest.mark.parametrize(("asks", "memory"), [(True, "normal"), (False, "normal"), (True, "low")])
def test_a_language_model_has_huge_pages_where_the_system_lets_it(
    cli: Cli, tsv: Path, exports: Exports, asks: bool, memory: str
) -> None:
    profile = cli.folder / "mine.yaml"
    profile.write_text(f"{{name: mine, summary: Mine., threads: 1, huge_pages: {str(asks).lower()}}}")
    # Low memory keeps its packed weights beside the artifact, which other tests share.
    artifact = shutil.copytree(exports("fp32"), cli.folder / "artifact")
    host = cli.folder / "host"
    switch = host / "sys/kernel/mm/transparent_hugepage/enabled"
    switch.parent.mkdir(parents=True)
    cli.environment |= {"EDGEBENCH_HOST_ROOT": str(host)}
    cli.environment.pop(TUNABLES, None)
    found: dict[str | None, bool | None] = {}
    for said in (None, "[always] madvise never", "always [madvise] never", "always madvise [never]"):
        if said is not None:
            switch.write_text(said)
        out = f"out{len(found)}"
        asked = ("--data", tsv, "--limit", 1, "--max-new-tokens", 1, "--profile", profile, "--memory", memory)
        done = cli("run", artifact, *asked, "-o", out, "--json")
        assert done.code == 0, done.err
        found[said] = done.json["engine"]["huge_pages"]
    assert list(found.values()) == [None, True, asks and memory == "normal", False]


@glibc
def test_ones_own_tunables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNABLES, "glibc.malloc.arena_max=1")
    assert asking_for_huge_pages() == {TUNABLES: f"glibc.malloc.arena_max=1:{HUGE_PAGES}=1"}
    monkeypatch.setenv(TUNABLES, f"{HUGE_PAGES}=2")
    assert asking_for_huge_pages() == {}


@linux
def test_a_run_tells_the_kinds_apart_and_old_runs_load(cli: Cli, tsv: Path, exports: Exports) -> None:
    done = cli("run", exports("fp32"), "--data", tsv, "--limit", 4, "--max-new-tokens", 2, "-o", "out", "--json")
    assert done.code == 0, done.err
    memory = done.json["memory"]
    assert memory["peak_anonymous_bytes"] > 10 * MIB
    assert memory["peak_file_backed_bytes"] > 10 * MIB
    assert max(memory["peak_anonymous_bytes"], memory["peak_file_backed_bytes"]) < memory["peak_bytes"]
    assert memory["peak_anonymous_bytes"] + memory["peak_file_backed_bytes"] > 0.9 * memory["peak_bytes"]
    loaded = memory["anonymous_after_load_bytes"] + memory["file_backed_after_load_bytes"]
    assert abs(loaded - memory["after_load_bytes"]) < 0.1 * memory["after_load_bytes"]
    peaks = [r["peak_anonymous_bytes"] for r in answers(cli.folder / "out")]
    assert peaks == sorted(peaks)
    report = cli("report", "out").out
    for words in ("peak anonymous", "peak file-backed", "RssAnon and RssFile"):
        assert words in report

    header = json.loads((cli.folder / "out" / "run.json").read_text())
    del header["settings"]["memory"]
    (cli.folder / "out" / "run.json").write_text(json.dumps(header))
    lines = [json.loads(line) for line in (cli.folder / "out" / "records.jsonl").read_text().splitlines()]
    kinds = ("anonymous", "file_backed", "memory_kinds")
    older = [{k: v for k, v in line.items() if not any(kind in k for kind in kinds)} for line in lines]
    assert older != lines
    (cli.folder / "out" / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in older))
    old = cli("report", "out", "--json")
    assert old.code == 0, old.err
    assert old.json["memory"]["peak_anonymous_bytes"] is None
    assert old.json["settings"]["memory"] == "normal"
    assert old.json["memory"]["peak_bytes"] == memory["peak_bytes"]
