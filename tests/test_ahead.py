"""Questions that are sent ahead of their answers: nothing of it may be seen in the records, whoever dies."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from edgebench.ahead import BATCH, SIZE
from tests import twins
from tests.conftest import Cli
from tests.test_isolation import Brittle
from tests.test_run import answers

ALWAYS = (
    "import sys; from edgebench import ahead; from edgebench.cli.main import main; ahead.BELOW_NS = 1 << 60; main()"
)


class Ahead(Cli):
    """The command line, asking every engine ahead, however long its answers take."""

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-c", ALWAYS, *map(str, arguments)]


def test_each_death_is_the_sample_s_whose_it_is(tmp_path: Path, site: Path) -> None:
    """In the first message, at its end, in the second one, twice in a row; two messages are under way each time."""
    brittle = Brittle(Ahead(tmp_path), site)
    deaths = {3: (10, "SIGSEGV"), BATCH: (40, "gave nothing for 1 s"), BATCH + 1: (30, "SIGKILL"), 90: (50, "code 3")}
    brittle.pictures(*(deaths[n][0] if n in deaths else 80 if n == 50 else 1 + n % 5 for n in range(95)))
    done = brittle.run("--time-limit", 1, "--json")
    assert done.code == 1, done.err
    records = answers(tmp_path / "out")
    assert [Path(r["id"]).stem for r in records] == [f"{n:02}" for n in range(95)], "each once, in order"
    errors = brittle.errors()
    for number, (_, says) in deaths.items():
        assert says in errors.pop(f"{number:02}")
    assert "OwnError: 1 is not 2" in errors.pop("50")
    assert not errors
    assert done.err.count("it is started again") == len(deaths)
    answered = [r for r in records if "error" not in r]
    assert all(round(255 * r["score"]) == 1 + int(Path(r["id"]).stem) % 5 for r in answered), "its own answer"
    assert all(0 < r["stages_ns"]["total"] <= r["took_ns"] < 10**9 for r in answered)
    assert sorted(r["asked_unix_ns"] for r in answered) == [r["asked_unix_ns"] for r in answered]


def test_a_kill_and_large_and_broken_samples_leave_each_question_answered_once(cli: Cli) -> None:
    rows = [twins.rows(4)[0] | {"index": str(n), "image": "AAAA" * 20} for n in range(4000)]
    for n in range(7, 4000, 331):
        rows[n]["image"] = "AAAA" * SIZE
        rows[n + 1]["answer"] = "Z"
    twins.write_tsv(cli.folder / "many.tsv", rows)
    arguments = ("run", "--engine", "null", "--data", "many.tsv", "-o", "out", "--resume")
    path = cli.folder / "out" / "records.jsonl"
    process = cli.start(*arguments)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path.exists() and path.read_bytes().count(b"\n") > 1_000):
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert path.read_bytes().count(b"\n") < 4_000, "it was killed in the middle"
    done = cli(*arguments, "--json")
    assert done.code == 1, done.err
    assert done.json["summary"]["failed"] == len(range(7, 4000, 331))
    assert [r["id"] for r in answers(cli.folder / "out")] == [str(n) for n in range(4000)]
