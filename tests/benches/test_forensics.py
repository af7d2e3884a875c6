"""The published TSV form, with its traps."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebench.benches.forensics import Forensics, find_file, forged_option
from edgebench.errors import DataError
from tests import twins

BASE = {"category": next(iter(twins.TASKS)), "answer": "A", **twins.BINARY}
PNG = twins.b64(twins.encoded(twins.picture(1)))


def write(folder: Path, *rows: dict[str, str], columns: list[str] | None = None) -> Path:
    return twins.write_tsv(
        folder / "ForensicsBench.tsv",
        [{"image": PNG, "index": str(i), **BASE, **row} for i, row in enumerate(rows)],
        columns,
    )


def test_all_tasks(tsv: Path) -> None:
    bench = Forensics.open(tsv)
    samples = list(bench.samples())
    assert bench.count() == len(samples) == 40
    assert all(s.problem is None for s in samples)
    assert {s.facts["task"] for s in samples} == {"BC", "SLS", "TL", "SLD"}
    assert samples[1].question.options["D"] == "Candidate 4"
    assert samples[0].question.forged_option == "A"
    assert samples[1].question.forged_option is None
    assert samples[0].images[0].read() == twins.encoded(twins.picture(0))


def test_another_rows_image(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"image": "2"}, {"image": "0"}, {}, {"image": "99"}, {"image": "4"}, {"image": "007"}, {"index": "7"}
    )
    samples = list(Forensics.open(path).samples())
    assert samples[0].images[0].read() == samples[1].images[0].read() == samples[2].images[0].read()
    assert "'99', which does not exist" in (samples[3].problem or "")
    assert "leads back to itself" in (samples[4].problem or "")
    assert samples[5].problem is None, "indexes are compared as numbers"


def test_a_reference_beyond_the_limit(tmp_path: Path) -> None:
    bench = Forensics.open(write(tmp_path, {"image": "3"}, {}, {}, {}), limit=2)
    assert bench.count() == 2
    assert [s.problem for s in bench.samples()] == [None, None]


def test_list_of_images(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"image": f"['{PNG}', '{PNG}']"},
        {"image": "[1, 2]"},
        {"image": "['abc'"},
        {"image": "[__import__('os')]"},
    )
    samples = list(Forensics.open(path).samples())
    assert len(samples[0].images) == 2
    assert samples[0].images[1].name == "0_1"
    assert all("list" in (s.problem or "") for s in samples[1:])


def test_image_path_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "a.png").write_bytes(twins.encoded(twins.picture(5)))
    columns = ["index", "image_path", "question", "A", "B", "answer", "category"]
    rows = [
        {"image_path": p}
        for p in ("pics/a.png", "['pics/a.png', 'pics/a.png']", "../../etc/passwd", "/etc/passwd", "pics/none.png")
    ]
    table = [{**BASE, "index": str(i), **row} for i, row in enumerate(rows)]
    samples = list(Forensics.open(twins.write_tsv(tmp_path / "ForensicsBench.tsv", table, columns)).samples())
    assert samples[0].images[0].read() == twins.encoded(twins.picture(5))
    assert len(samples[1].images) == 2
    assert "outside its folder" in (samples[2].problem or "")
    assert "outside its folder" in (samples[3].problem or "")
    assert samples[4].problem is None, "a missing file shows when it is read"


def test_traps_of_single_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"hint": "nan"},
        {"hint": 'Look\tat the\n"edges".'},
        {"B": ""},
        {"answer": "C"},
        {"answer": ""},
        {"category": "human_real_none_visibleimage_categry"},
        {"category": "Human_real_none_visibleimage_category"},
        {"question": ""},
        {"image": "x" * 70},
        {"image": ""},
        {"C": "None", "D": "N/A"},
    )
    samples = list(Forensics.open(path).samples())
    assert samples[0].question.hint is None
    assert samples[1].question.hint == 'Look\tat the\n"edges".'
    assert list(samples[2].question.options) == ["A"]
    assert "'C' is none of the options" in (samples[3].problem or "")
    assert "none of the options" in (samples[4].problem or "")
    assert "did you mean 'human_real_none_visibleimage_category'" in (samples[5].problem or "")
    assert samples[6].problem is not None
    assert "no question" in (samples[7].problem or "")
    assert "not base64" in (samples[8].problem or "")
    assert "no image" in (samples[9].problem or "")
    assert list(samples[10].question.options) == ["A", "B"], "cells that pandas reads as missing are missing"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"index\tquestion\n1\t\xff\xfe\n", "not UTF-8"),
        (b"index\tindex\tquestion\n", "twice"),
        (b"index\tquestion\n1\n", "1 cells"),
        (b"index\tquestion\tanswer\tcategory\n", "no column 'image'"),
        (b"\x00\x01\x02", "has no column"),
    ],
)
def test_files_of_another_form(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "ForensicsBench.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        Forensics.open(path)


def test_a_repeated_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="appears twice"):
        Forensics.open(write(tmp_path, {"index": "5"}, {"index": "5"}))


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, {}, {})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert [s.problem for s in Forensics.open(path).samples()] == [None, None]


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDGEBENCH_DATA", "LMUData"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"huggingface.co/datasets.*LMUData"):
        find_file(None)
    for folder, variable in (("LMUData", None), ("lmu", "LMUData"), ("mine", "EDGEBENCH_DATA")):
        (tmp_path / folder).mkdir()
        file = write(tmp_path / folder, {})
        if variable:
            monkeypatch.setenv(variable, str(tmp_path / folder))
        assert find_file(None) == file
    assert find_file(tmp_path / "lmu") == tmp_path / "lmu" / "ForensicsBench.tsv"


def test_memory_stays_flat_over_a_large_file(tmp_path: Path) -> None:
    """Two hundred rows of 400 kB each are read without ever holding more than a few of them."""
    import tracemalloc

    big = twins.b64(b"\x89PNG" + bytes(300_000))
    path = write(tmp_path, *({"image": big} for _ in range(200)))
    assert path.stat().st_size > 70_000_000
    tracemalloc.start()
    count = sum(1 for s in Forensics.open(path).samples() if s.problem is None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200
    assert peak < 8_000_000


@pytest.mark.parametrize(
    ("options", "letter"),
    [
        (twins.BINARY, "A"),
        ({"A": "Non AI-generated", "B": "AI-manipulated"}, "B"),
        ({"A": "real", "B": "fake"}, None),
        ({"A": "non x", "B": "non y"}, None),
        ({"A": "x", "B": "non x", "C": "z"}, None),
    ],
)
def test_forged_option(options: dict[str, str], letter: str | None) -> None:
    assert forged_option({k: v for k, v in options.items() if k != "question"}) == letter
