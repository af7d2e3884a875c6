"""The mini benchmark: its form, its balance, and that its text gives nothing away."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("cv2")
pytest.importorskip("skimage")
pytest.importorskip("sklearn")

from edgebench.benches.taxonomy import categories
from edgebench.demo import mini, photographs
from edgebench.demo.panels import GAP, TITLE
from edgebench.demo.scenes import TILE
from edgebench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, str]


@pytest.fixture(scope="module")
def written(mini_cache: Path) -> Path:
    (path,) = mini_cache.glob("*.tsv")
    return path


@pytest.fixture(scope="module")
def rows(written: Path) -> list[Row]:
    csv.field_size_limit(2**31 - 1)
    with written.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def kind(row: Row) -> tuple[str, str]:
    """Modality and task."""
    modality, task = row["category"].split("_")[3:]
    return modality, task


def options(row: Row) -> list[str]:
    return [row[letter] for letter in "ABCD" if row[letter]]


def test_published_form(rows: list[Row]) -> None:
    assert tuple(rows[0]) == mini.COLUMNS
    assert [row["index"] for row in rows] == [str(k) for k in range(len(rows))]
    assert {row["split"] for row in rows} == {"test"}
    for row in rows:
        assert row["answer"] in "ABCD"[: len(options(row))]
        assert len(options(row)) == (2 if kind(row)[1] == "category" else 4)
        assert len(set(options(row))) == len(options(row))


def test_every_field_is_quoted_and_lines_end_plainly(written: Path) -> None:
    with written.open("rb") as stream:
        head = stream.readline()
    assert head == b"\t".join(b'"%s"' % name.encode() for name in mini.COLUMNS) + b"\n"


def test_enough_questions_of_all_tasks_and_modalities(rows: list[Row]) -> None:
    assert len(rows) == mini.count() >= 600
    assert {kind(row)[1] for row in rows} == {"category", "seg", "det", "temporal"}
    assert {kind(row)[0] for row in rows} == {"visibleimage", "visibleimagetext", "video"}
    slugs = {row["category"] for row in rows}
    assert slugs <= set(categories())
    assert len(slugs) >= 25
    assert {slug.split("_")[0] for slug in slugs} == {"human", "nonhuman"}


def test_same_seed_same_bytes_and_another_split_other_pictures(rows: list[Row], tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    total = mini.write_forensics_mini(
        tmp_path / "one.tsv", split="calibration", progress=lambda done, all_: steps.append((done, all_))
    )
    mini.write_forensics_mini(tmp_path / "two.tsv", split="calibration")
    assert steps[-1] == (total, total)
    contents = [(tmp_path / name).read_bytes() for name in ("one.tsv", "two.tsv")]
    assert contents[0] == contents[1]
    with (tmp_path / "one.tsv").open(encoding="utf-8", newline="") as stream:
        other = list(csv.DictReader(stream, delimiter="\t"))
    assert not {row["image"] for row in rows} & {row["image"] for row in other}


def test_unknown_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calibration"):
        photographs.of_split("validation")


def test_photographs_are_disjoint_and_there() -> None:
    files = [(p.package, p.file) for p in photographs.PHOTOGRAPHS]
    assert len(set(files)) == len(files)
    assert not {p.name for p in photographs.of_split("test")} & {p.name for p in photographs.of_split("train")}
    seen = [hashlib.sha256(photographs.load(p).tobytes()).hexdigest() for p in photographs.PHOTOGRAPHS]
    assert len(set(seen)) == len(seen)
    assert all(p.licence for p in photographs.PHOTOGRAPHS)


def test_letters_are_balanced(rows: list[Row]) -> None:
    by_kind: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_kind[kind(row)][row["answer"]] += 1
    for letters in by_kind.values():
        assert max(letters.values()) - min(letters.values()) <= 2


def test_real_and_forged_are_equally_many_in_binary_questions(rows: list[Row]) -> None:
    sides: dict[tuple[str, frozenset[str]], Counter[bool]] = defaultdict(Counter)
    for row in rows:
        if kind(row)[1] == "category":
            key = (kind(row)[0], frozenset(options(row)))
            sides[key][row["category"].split("_")[1] == "real"] += 1
    for counts in sides.values():
        assert counts[True] == counts[False]


def test_the_empty_option_is_right_in_a_quarter(rows: list[Row]) -> None:
    for task in ("seg", "det", "temporal"):
        chosen = [row for row in rows if kind(row)[1] == task]
        real = sum(row["category"].split("_")[1] == "real" for row in chosen)
        assert real / len(chosen) == pytest.approx(0.25, abs=0.01)


def test_composites_have_the_processor_s_sizes(rows: list[Row]) -> None:
    sizes: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for row in rows:
        with Image.open(io.BytesIO(base64.b64decode(row["image"]))) as image:
            assert image.format == "PNG"
            sizes[kind(row)].add(image.size)

    def wide(n: int) -> int:
        return n * TILE + (n - 1) * GAP

    assert sizes["visibleimage", "category"] == sizes["visibleimagetext", "det"] == {(TILE, TILE)}
    assert sizes["video", "category"] == {(wide(4), TILE)}
    assert sizes["visibleimage", "seg"] == {(wide(5), TITLE + TILE)}
    assert sizes["video", "seg"] == {(wide(4), 5 * (TITLE + TILE) + 4 * GAP)}
    assert sizes["video", "temporal"] == {(wide(8), TITLE + TILE)}
    assert TILE % 16 == GAP % 16 == TITLE % 16 == 0


def size_of(row: Row) -> tuple[float, float]:
    """Width and height, pixels, from the head of the PNG."""
    head = base64.b64decode(row["image"][:64])
    return float(int.from_bytes(head[16:20], "big")), float(int.from_bytes(head[20:24], "big"))


def _option_facts(row: Row, letter: str, rank: dict[str, float]) -> list[float]:
    """What the text says about one option: its letter, length, numbers, and how they compare with the others'."""
    text = row[letter]
    numbers = [float(n) for n in "".join(c if c.isdigit() else " " for c in text).split()]
    others = [row[other] for other in "ABCD" if row[other]]
    padded = (numbers + [0.0] * 8)[:8]
    area = (padded[2] - padded[0]) * (padded[3] - padded[1])
    shared = [len(set(text.split()) & set(other.split())) for other in others]
    return [
        *[float(letter == one) for one in "ABCD"],
        len(text),
        rank[letter],
        len(numbers),
        *padded,
        area,
        float(np.mean(shared)),
        float("non" in text),
        float("generated" in text),
    ]


def _question_facts(row: Row) -> list[float]:
    words = ("dark", "bright", "smooth", "detailed", "blue", "green", "red")
    return [float(word in row["question"]) for word in words] + [float(len(row["question"])), *size_of(row)]


@pytest.mark.parametrize("task", ["category", "seg", "det", "temporal"])
def test_a_reader_of_text_and_size_is_at_chance(task: str, rows: list[Row]) -> None:
    """5-fold accuracy of boosted trees over options: at most 5 points above chance.

    It sees the letter, the whole option, its likeness to the others, the caption's words and the text's length, and
    the size of the composite. Exactly balanced letters push a cross-validated guesser below chance, so only the
    upper side is a finding.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    chosen = [row for row in rows if kind(row)[1] == task]
    folds = np.random.default_rng(0).permutation(len(chosen)) % 5
    table: list[list[float]] = []
    target: list[float] = []
    owner: list[int] = []
    for k, row in enumerate(chosen):
        ordered = sorted("ABCD"[: len(options(row))], key=lambda letter: len(row[letter]))
        rank = {letter: float(place) for place, letter in enumerate(ordered)}
        for letter in ordered:
            table.append(_option_facts(row, letter, rank) + _question_facts(row))
            target.append(float(row["answer"] == letter))
            owner.append(k)
    x, y, who = np.array(table), np.array(target), np.array(owner)
    right = 0
    for fold in range(5):
        train = folds[who] != fold
        model: Any = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=6, random_state=0)
        model.fit(x[train], y[train])
        likely = model.predict_proba(x[~train])[:, 1]
        for k in np.flatnonzero(folds == fold):
            mine = np.flatnonzero(who[~train] == k)
            best = mine[likely[mine].argmax()]
            right += int(y[~train][best])
    chance = 0.5 if task == "category" else 0.25
    assert right / len(chosen) <= chance + 0.05
