"""Labelled images: folders and CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebench.benches.images import Images
from edgebench.errors import DataError
from tests import twins


def fill(folder: Path) -> Path:
    for name in ("real/a.png", "real/deep/b.JPG", "forged/flux/c.webp", "forged/notes.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(twins.encoded(twins.picture(1)))
    return folder


def test_folder(tmp_path: Path) -> None:
    bench = Images.open(fill(tmp_path))
    assert [(s.id, s.target, s.category, s.facts["format"]) for s in bench.samples()] == [
        ("real/a.png", "real", "real", "png"),
        ("real/deep/b.JPG", "real", "real/deep", "jpg"),
        ("forged/flux/c.webp", "forged", "forged/flux", "webp"),
    ]
    assert "1 files that are no images" in bench.data().note
    assert bench.data().questions == 3
    assert Images.open(tmp_path, limit=1).data().questions == 1


def test_csv(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "list.csv"
    path.write_text(
        "file,label,forgery_type,generator\nreal/a.png,real,,\nforged/flux/c.webp,forged,synthesis,flux\n../x.png,forged,,\nreal/deep/b.JPG,fake,,\n,real,,\n"
    )
    samples = list(Images.open(path).samples())
    assert samples[1].category == "synthesis"
    assert samples[1].facts["generator"] == "flux"
    assert [bool(s.problem) for s in samples] == [False, False, True, True, True]
    assert "outside" in (samples[2].problem or "")
    assert "'fake' is neither" in (samples[3].problem or "")


def test_changed_data_are_other_data(tmp_path: Path) -> None:
    before = Images.open(fill(tmp_path)).data().fingerprint
    assert Images.open(tmp_path).data().fingerprint == before
    (tmp_path / "real" / "z.png").write_bytes(b"x")
    assert Images.open(tmp_path).data().fingerprint != before


@pytest.mark.parametrize("make", ["nothing", "empty", "no-column", "twice"])
def test_errors(tmp_path: Path, make: str) -> None:
    target = tmp_path / "data.csv"
    if make == "empty":
        target = tmp_path
        (tmp_path / "real").mkdir()
    elif make == "no-column":
        target.write_text("file,class\n")
    elif make == "twice":
        target.write_text("file,label\na.png,real\na.png,real\n")
    with pytest.raises(DataError):
        Images.open(target)
    with pytest.raises(DataError, match="--data"):
        Images.open(None)
