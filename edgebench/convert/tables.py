"""Rows -> CSV, Parquet, SQLite, and a database that can be asked in SQL."""

from __future__ import annotations

import csv
import importlib.util
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.convert.rows import RECORD_COLUMNS, RUN_COLUMNS, record_rows
from edgebench.errors import MissingExtraError, UsageError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import duckdb

    from edgebench.records import Run


def names(runs: Sequence[Run]) -> list[str]:
    """The name of each run in the column `run`: its folder's, or its path where two are called the same."""
    short = [run.folder.resolve().name for run in runs]
    return [s if short.count(s) == 1 else str(run.folder) for s, run in zip(short, runs, strict=True)]


def all_records(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """The questions of all runs, one after the other."""
    for run, name in zip(runs, names(runs), strict=True):
        yield from record_rows(run, name=name)


def write_csv(runs: Sequence[Run], target: Path) -> list[Path]:
    """One row a question. An unknown value is an empty cell."""
    partial = _partial(target)
    with partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(RECORD_COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(all_records(runs))
    partial.replace(target)
    return [target]


def write_parquet(runs: Sequence[Run], target: Path) -> list[Path]:
    """The same rows with types, compressed with Zstandard.

    Raises:
        MissingExtraError: DuckDB, which writes it, is not installed.
    """
    partial = _partial(target)
    with closing(_duckdb()) as database:
        _fill(database, "records", RECORD_COLUMNS, all_records(runs))
        path = str(partial).replace("'", "''")
        database.execute(f"COPY records TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    partial.replace(target)
    return [target]


def write_sqlite(runs: Sequence[Run], run_rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Tables `runs` and `records`, joined by `run`."""
    partial = _partial(target)
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as database:
        for table, columns, rows in (
            ("runs", RUN_COLUMNS, iter(run_rows)),
            ("records", RECORD_COLUMNS, all_records(runs)),
        ):
            shown = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            database.execute(f'CREATE TABLE "{table}" ({shown})')
            places = ", ".join(f":{name}" for name in columns)
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)  # noqa: S608 - names of this package
        database.execute("CREATE INDEX records_by_run ON records (run)")
        database.commit()
    partial.replace(target)


def ask(
    sql: str, runs: Sequence[Run], run_rows: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Answer a question in SQL over the tables `runs` and `records`.

    It runs in a read-only transaction on a copy in memory that reaches no file, no network and no extension.

    Returns:
        Column names, and rows.

    Raises:
        UsageError: the SQL is wrong, or wants more than to read.
        MissingExtraError: DuckDB is not installed.
    """
    with closing(_duckdb()) as database:
        import duckdb

        _fill(database, "runs", RUN_COLUMNS, run_rows)
        if "records" in sql.lower():
            _fill(database, "records", RECORD_COLUMNS, all_records(runs))
        database.execute("SET enable_external_access = false")
        database.execute("SET lock_configuration = true")
        database.execute("BEGIN TRANSACTION READ ONLY")
        try:
            answer = database.execute(sql)
            columns = tuple(str(d[0]) for d in answer.description or ())
            return columns, answer.fetchall() if columns else []
        except duckdb.Error as error:
            raise UsageError(one_line(error), where="--sql", hint="the tables are runs and records") from error


def _duckdb() -> duckdb.DuckDBPyConnection:
    if importlib.util.find_spec("duckdb") is None:
        raise MissingExtraError("Parquet and SQL need DuckDB", hint="pip install 'edgebench[report]'")
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"},
    )


def _fill(
    database: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]
) -> None:
    """A table of that name. Rows go through a file of JSON lines, which DuckDB reads in bulk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        kinds = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        shown = ", ".join(f'"{name}"' for name in columns)
        source = "read_json($path, format = 'newline_delimited', maximum_object_size = 268435456, columns = {%s})"
        database.execute(
            f'CREATE TABLE "{table}" AS SELECT {shown} FROM ' + source % kinds,  # noqa: S608 - names of this package
            {"path": str(path)},
        )


def _partial(target: Path) -> Path:
    """Where a file grows until it is whole.

    Raises:
        UsageError: its folder does not exist.
    """
    if target.is_dir() or not target.parent.is_dir():
        why = "is a folder" if target.is_dir() else "its folder does not exist"
        raise UsageError(why, where=target, hint="name a file in a folder that is there")
    return target.with_name(target.name + ".partial")
