"""Runs as others read them: listed, queried, and in the files of other tools."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import pytest

from edgebench.convert.library import find
from edgebench.convert.tables import ask
from edgebench.errors import UsageError
from tests.conftest import Cli
from tests.runs import write_run

HOSTILE = "../../out of it\n<b>'; DROP TABLE runs --"


def test_runs_are_listed_filtered_and_asked_in_sql(cli: Cli) -> None:
    duckdb = pytest.importorskip("duckdb")
    store = cli.folder / "runs"
    write_run(store / "one", precision="fp32")
    write_run(store / "deep" / "two", precision="int8", wrong=20, slower=0.5)
    write_run(store / "three", name=HOSTILE, precision="int4", bench="packed")
    done = cli("runs", "--json")
    assert done.code == 0, done.err
    assert {r["run"] for r in done.json["runs"]} == {"one", "two", "three"}
    one = next(r for r in done.json["runs"] if r["run"] == "one")
    assert (one["answered"], one["accuracy"], one["bench"], one["complete"]) == (400, 0.75, "forensics", True)
    assert one["accuracy_low"] < 0.75 < one["accuracy_high"]
    filters: tuple[tuple[dict[str, str], set[str]], ...] = (
        ({"precision": "int8"}, {"two"}),
        ({"bench": "packed"}, {"three"}),
        ({"model": "a model"}, {"one", "two"}),
        ({"engine": "null"}, set()),
        ({"since": "2026-05-02"}, set()),
        ({"until": "2026-05-01"}, {"one", "two", "three"}),
    )
    for wanted, left in filters:
        assert {run.folder.name for run in find(store, **wanted).runs} == left, wanted
    assert cli("runs", "runs", "--bench", "packed", "--device", "no such device", "--json").json["runs"] == []
    assert cli("runs", "--since", "yesterday").code == 2
    sql = "select r.precision, count(*), avg(q.\"right\"::int) from runs r join records q using (run) where r.bench = 'forensics' group by 1 order by 1"
    assert cli("runs", "--sql", sql, "--json").json["rows"] == [["fp32", 400, 0.75], ["int8", 400, 0.7]]
    for wrong in (
        "drop table runs",
        f"copy runs to '{cli.folder / 'stolen.csv'}'",
        "select * from read_csv('/etc/passwd')",
        "attach 'other.db'",
        "set enable_external_access = true",
        "selekt",
    ):
        with pytest.raises(UsageError) as refused:
            ask(wrong, [], [])
        assert "\n" not in str(refused.value)
    assert cli("runs", "--sql", "drop table runs").code == 2
    assert not (cli.folder / "stolen.csv").exists()
    assert cli("runs", "--to", "all.sqlite", "--json").code == 0
    with sqlite3.connect(cli.folder / "all.sqlite") as database:
        counted = database.execute('select run, sum("right") from records group by run order by run').fetchall()
        assert counted == [("one", 300), ("three", 300), ("two", 280)]
        assert database.execute("select model from runs where run = 'three'").fetchall() == [(HOSTILE,)]
    database.close()
    (store / "torn").mkdir()
    (store / "torn" / "run.json").write_text("{")
    damaged = cli("runs", "--json")
    assert damaged.code == 1
    assert "torn" in damaged.json["damaged"][0]

    done = cli("convert", "runs/one", "runs/deep/two", "--to", "parquet", "-o", "r.parquet", "--json")
    assert done.code == 0, done.err
    rows = duckdb.sql(
        f"select run, count(*), sum(\"right\"::int), count(tpot_ns), min(total_ns) from '{cli.folder / 'r.parquet'}' group by run order by run"
    ).fetchall()
    assert [r[:4] for r in rows] == [("one", 400, 300, 200), ("two", 400, 280, 200)], "no time per token from one token"
    assert rows[0][4] > 0
    assert cli("convert", "runs/one", "--to", "parkett", "-o", "x").err.count("parquet") == 1


def test_csv_vlmevalkit_and_lm_eval_say_what_the_run_says(cli: Cli) -> None:
    write_run(cli.folder / "a", name=HOSTILE, wrong=10)
    assert cli("convert", "a", "--to", "csv", "-o", "r.csv").code == 0
    with (cli.folder / "r.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert (len(rows), sum(r["right"] == "True" for r in rows)) == (400, 290)
    assert (rows[0]["tpot_ns"], rows[1]["tpot_ns"] != "") == ("", True)
    assert json.loads(rows[0]["options"])["B"] == "forged\tor not"

    before = set(cli.folder.iterdir())
    done = cli("convert", "a", "--to", "vlmevalkit", "-o", "out", "--json")
    assert done.code == 0, done.err
    predictions, scores = (Path(cli.folder / f) for f in done.json["files"])
    assert set(cli.folder.iterdir()) - before == {cli.folder / "out"}, "a model's name leads nowhere"
    assert predictions.parent.name == "T20260501-100000"
    assert predictions.name == f"{predictions.parents[1].name}_ForensicsBench.tsv"
    assert scores.name == predictions.name.replace(".tsv", "_acc.csv")
    with predictions.open(newline="", encoding="utf-8") as stream:
        said = list(csv.DictReader(stream, delimiter="\t"))
    assert list(said[0]) == ["index", "question", "A", "B", "answer", "category", "l2-category", "prediction"]
    with scores.open(newline="", encoding="utf-8") as stream:
        row = next(csv.DictReader(stream))
    hits = [r["prediction"] == r["answer"] for r in said]
    assert float(row["Overall"]) == sum(hits) / len(hits) == 290 / 400
    for group in ("category", "l2-category"):
        name = said[0][group]
        own = [hit for hit, r in zip(hits, said, strict=True) if r[group] == name]
        assert float(row[name]) == pytest.approx(sum(own) / len(own))

    done = cli("convert", "a", "--to", "lm-eval", "-o", "out", "--json")
    assert done.code == 0, done.err
    results, samples = (Path(cli.folder / f) for f in done.json["files"])
    assert results.name == "results_2026-05-01T10-00-00.000000.json"
    assert samples.name == "samples_ForensicsBench_2026-05-01T10-00-00.000000.jsonl"
    value = json.loads(results.read_text())
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert (
        value["results"]["ForensicsBench"]["acc,none"] == sum(line["acc"] for line in lines) / len(lines) == 290 / 400
    )
    assert value["n-samples"]["ForensicsBench"] == {"original": 400, "effective": 400}
    assert lines[0]["resps"] == [["B"]]
    assert [line["doc_id"] for line in lines] == list(range(400))
