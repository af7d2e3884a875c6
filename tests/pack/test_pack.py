"""`edgebench pack` as a person uses it: folders, CSV files, clips, masks, and what is left out."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("imagehash")
pytest.importorskip("scipy")

from edgebench.media.grids import GAP, TITLE
from edgebench.media.pixels import geometry
from edgebench.pack import areas
from edgebench.pack.items import frame_numbers
from tests.media.test_video import write as write_video

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import Cli

Row = dict[str, str]


def photograph(seed: int, height: int = 120, width: int = 160) -> NDArray[np.uint8]:
    """Smooth random colours, so that perceptual hashes differ."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def mask(seed: int, height: int = 120, width: int = 160) -> NDArray[np.uint8]:
    rng = np.random.default_rng((seed, 7))
    out = np.zeros((height, width), np.uint8)
    top, left = int(rng.integers(0, height - 40)), int(rng.integers(0, width - 50))
    out[top : top + int(rng.integers(15, 40)), left : left + int(rng.integers(20, 50))] = 255
    return out


def folder(root: Path, forged: int = 24, real: int = 24) -> Path:
    """A folder of own data with masks for two types of three."""
    for k in range(real):
        target = root / "real" / f"r{k:02d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(k)).save(target)
    for k in range(forged):
        kind = ("copy_move", "splicing/tool", "own (thing)")[k % 3]
        target = root / "forged" / kind / f"f{k:02d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(1000 + k)).save(target, quality=95)
        if k % 3 < 2:
            beside = root / "masks" / kind / f"f{k:02d}.png"
            beside.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask(k)).save(beside)
    return root


def rows(path: Path) -> list[Row]:
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def picture(row: Row) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(row["image"]))).convert("RGB"))


def task(row: Row) -> str:
    return row["category"].split("_")[4]


def test_a_folder_becomes_questions_of_three_tasks(cli: Cli) -> None:
    source = folder(cli.folder / "mine")
    (source / "real" / "notes.txt").write_text("no picture")
    (source / "real" / "broken.png").write_bytes(b"\x89PNG no")
    (source / "real" / "twice.png").write_bytes((source / "real" / "r03.png").read_bytes())
    Image.fromarray(mask(1, 100, 100)).save(source / "masks" / "copy_move" / "f00.png")
    done = cli("pack", "mine", "--json")
    assert done.code == 0, done.err
    value = done.json
    assert value["questions"] == {
        "BC": {"forged": 24, "real": 24},
        "SLS": {"forged": 15, "real": 5},
        "SLD": {"forged": 15, "real": 5},
        "TL": {"forged": 0, "real": 0},
    }
    why = {(s["name"], s["what"]): s["why"] for s in value["skipped"]}
    assert why["real/notes.txt", "file"] == "is no picture and no video by its suffix"
    assert "no image that can be decoded" in why["real/broken.png", "file"]
    assert why["real/twice.png", "file"] == "has the same bytes as real/r03.png"
    assert why["forged/copy_move/f00.jpg", "SLS, SLD"] == "the mask is 100 x 100, the picture 160 x 120"
    assert len(why) == 4
    assert json.loads((cli.folder / "mine.pack.json").read_text())["skipped"] == value["skipped"]
    found = rows(cli.folder / "mine.tsv")
    assert len(found) == 88
    assert {row["category"] for row in found if row["source"].startswith("forged") and task(row) == "category"} == {
        "nonhuman_generalcopymove_unknown_visibleimage_category",
        "nonhuman_generalsplicing_tool_visibleimage_category",
        "nonhuman_own_unknown_visibleimage_category",
    }
    for row in found:
        if task(row) == "category":
            forged = row[row["answer"]][:4] != "non "
            assert forged == row["source"].startswith("forged")
            assert base64.b64decode(row["image"]) == (cli.folder / "mine" / row["source"]).read_bytes()
    for kind, most in (("category", 25), ("seg", 5), ("det", 5)):
        letters = Counter(row["answer"] for row in found if task(row) == kind)
        assert max(letters.values()) <= most, letters


def test_right_masks_and_boxes_are_those_of_the_file(cli: Cli) -> None:
    folder(cli.folder / "mine")
    assert cli("pack", "mine", "-o", "a.tsv").code == 0
    for row in rows(cli.folder / "a.tsv"):
        place = "ABCD".find(row["answer"])
        forged = row["source"].startswith("forged")
        number = int(re.findall(r"\d+", row["source"])[-1])
        truth = mask(number) > 0 if forged else np.zeros((120, 160), bool)
        if task(row) == "seg":
            whole = picture(row)
            assert whole.shape == (TITLE + 120, 5 * 160 + 4 * GAP, 3)
            panels = [whole[TITLE:, k * (160 + GAP) :][:, :160] for k in range(5)]
            found = [panel[..., 0] > 127 for panel in panels[1:]]
            assert areas.overlap(found[place], truth) > 0.9 if forged else not found[place].any()
            assert [bool(m.any()) for m in found].count(False) == 1
            assert all(areas.overlap(found[place], m) < 0.4 for k, m in enumerate(found) if k != place)
        elif task(row) == "det":
            boxes = re.findall(r"\[ (\d+), (\d+), (\d+), (\d+) \]", row["ABCD"[place]])
            ys, xs = np.nonzero(truth)
            expected = [(xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)] if forged else []
            assert [tuple(map(int, box)) for box in boxes] == expected
            assert "width is 160 and the height is 120" in row["question"]
            assert sum(row[letter] == '{ "forged area": [] }' for letter in "ABCD") == 1


def test_the_options_alone_tell_nothing(cli: Cli) -> None:
    """In the mode `others` a right area is drawn from the same law as the wrong ones."""
    folder(cli.folder / "mine", forged=240, real=120)
    assert cli("pack", "mine", "-o", "a.tsv", "--panel", "64").code == 0
    largest = nearest = asked = 0
    for row in rows(cli.folder / "a.tsv"):
        if task(row) != "det" or row["source"].startswith("real"):
            continue
        boxes = [np.array(re.findall(r"\d+", row[letter]), float) for letter in "ABCD"]
        sizes = [(b[2] - b[0]) * (b[3] - b[1]) if len(b) else 0 for b in boxes]
        middle = [-np.hypot(b[[0, 2]].mean() - 80, b[[1, 3]].mean() - 60) if len(b) else -1e9 for b in boxes]
        place = "ABCD".find(row["answer"])
        largest += int(np.argmax(sizes)) == place
        nearest += int(np.argmax(middle)) == place
        asked += 1
    assert asked == 160
    for right in (largest, nearest):
        assert 1 / 3 - 0.11 < right / asked < 1 / 3 + 0.11


def test_same_seed_same_bytes_and_another_seed_others(cli: Cli) -> None:
    folder(cli.folder / "mine", 9, 9)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert cli("pack", "mine", "-o", f"{name}.tsv", "--seed", seed).code == 0
    a, b, c = ((cli.folder / f"{name}.tsv").read_bytes() for name in "abc")
    assert a == b != c


def test_perturbed_masks_are_near_the_true_one(cli: Cli) -> None:
    folder(cli.folder / "mine")
    done = cli("pack", "mine", "-o", "p.tsv", "--wrong-masks", "perturbed", "--panel", "96", "--square")
    assert done.code == 0, done.err
    assert "the options alone tell much" in done.out
    from edgebench.manifest import Preprocess

    tiles = Preprocess(
        kind="tile_rows", height=96, width=96, mean=(0.5,) * 3, std=(0.5,) * 3, filter="bicubic", gap=GAP, title=TITLE
    )
    near = 0
    for row in rows(cli.folder / "p.tsv"):
        if task(row) != "seg":
            continue
        panels = geometry(picture(row), tiles)
        assert len(panels) == 5
        found = [panel[..., 0] > 127 for panel in panels[1:]]
        place = "ABCD".find(row["answer"])
        if row["source"].startswith("real"):
            assert not found[place].any()
            continue
        near += sum(0.2 < areas.overlap(found[place], m) < 0.9 for k, m in enumerate(found) if k != place)
    assert near >= 0.9 * 3 * 16


def test_clips_give_strips_mask_sets_and_frame_lists(cli: Cli) -> None:
    pytest.importorskip("av")
    lines = ["file,label,forgery_type,mask,forged_frames,semantic"]
    for k in range(6):
        write_video(cli.folder / f"v{k}.mp4", 80 + k)
        with (cli.folder / f"v{k}.mp4").open("ab") as stream:
            stream.write(b"\0\0\0\x09free" + bytes([k]))
        lines.append(f"v{k}.mp4,forged,face_swap,,{10 * k}-{10 * k + 30},human")
    for k in range(2):
        write_video(cli.folder / f"real{k}.mp4", 88 + k)
        lines.append(f"real{k}.mp4,real,,,,human")
    for k in range(4):
        frames, masks = cli.folder / f"frames{k}", cli.folder / f"masks{k}"
        frames.mkdir()
        masks.mkdir()
        for n in range(9):
            Image.fromarray(photograph(10 * k + n)).save(frames / f"{n}.png")
            Image.fromarray(mask(10 * k + n)).save(masks / f"{n}.png")
        lines.append(f"frames{k},forged,own,masks{k},,")
    write_video(cli.folder / "short.mp4", 3)
    lines += ["short.mp4,real,,,,", "v0.mp4,forged,,,,", "gone.mp4,real,,,,", "../v1.mp4,real,,,,", "v1.mp4,maybe,,,,"]
    (cli.folder / "clips.csv").write_text("\n".join(lines) + "\n")
    done = cli("pack", "clips.csv", "--json")
    assert done.code == 0, done.err
    value = done.json
    assert value["questions"] == {
        "BC": {"forged": 10, "real": 2},
        "SLS": {"forged": 4, "real": 1},
        "SLD": {"forged": 0, "real": 0},
        "TL": {"forged": 6, "real": 2},
    }
    why = {s["name"]: s["why"] for s in value["skipped"]}
    assert why["short.mp4"] == "has 3 frames, 4 are needed"
    assert why["v0.mp4"] == "is listed twice"
    assert why["gone.mp4"] == "does not exist"
    assert "outside" in why["../v1.mp4"]
    found = rows(cli.folder / "clips.tsv")
    for row in found:
        whole = picture(row)
        if task(row) == "temporal":
            assert whole.shape == (TITLE + 128, 8 * 192 + 7 * GAP, 3)
            shown = [int(whole[TITLE : TITLE + 16, k * (192 + GAP) :][:, :16].mean()) / 2 for k in range(8)]
            listed = {int(n) for n in re.findall(r"\d+", row[row["answer"]])}
            first = 10 * int(row["source"][1]) if row["source"][0] == "v" else 10**6
            for k, frame in enumerate(shown):
                if abs(frame - first) > 3 and abs(frame - first - 30) > 3:
                    assert (k in listed) == (first < frame < first + 30), (row["source"], shown, listed)
            assert len({row[letter] for letter in "ABCD"}) == 4
        elif task(row) == "seg":
            assert (
                whole.shape[0] == 5 * (TITLE + 120) + 4 * GAP
                if row["source"][0] == "f"
                else 5 * (TITLE + 128) + 4 * GAP
            )
        elif row["source"].startswith("v"):
            assert whole.shape == (128, 4 * 192, 3)
            assert row["category"] == "human_faceswaponeface_unknown_video_category"


def test_captions_are_asked_about_with_their_picture(cli: Cli) -> None:
    for k in range(2):
        Image.fromarray(photograph(k)).save(cli.folder / f"{k}.png")
    (cli.folder / "c.csv").write_text(
        'file,label,forgery_type,caption\n0.png,fake,text swap,"A ""quoted"" cat,\tand more"\n1.png,authentic,,A dog\n'
    )
    assert cli("pack", "c.csv").code == 0
    by_source = {row["source"]: row for row in rows(cli.folder / "c.tsv")}
    assert 'The caption is "A "quoted" cat, and more".' in by_source["0.png"]["question"]
    assert by_source["0.png"]["category"] == "nonhuman_textswap_unknown_visibleimagetext_category"
    run = cli("run", "--engine", "null", "--bench", "packed", "--data", "c.tsv", "--json")
    assert run.code == 0, run.err
    assert run.json["summary"]["answered"] == 2


def test_near_duplicates_across_splits_are_reported(cli: Cli) -> None:
    folder(cli.folder / "mine", 6, 6)
    calibration = cli.folder / "calibration" / "real"
    calibration.mkdir(parents=True)
    with Image.open(cli.folder / "mine" / "real" / "r02.png") as image:
        image.resize((120, 90)).save(calibration / "copy.jpg", quality=60)
    Image.fromarray(photograph(999)).save(calibration / "other.png")
    value = cli("pack", "mine", "--against", "calibration", "--json").json
    assert [(d["one"], d["other"]) for d in value["near_duplicates"]] == [("real/copy.jpg", "real/r02.png")]
    shown = cli("pack", "mine", "--against", "calibration", "--overwrite")
    assert "Near-duplicates across splits: 1" in shown.out


@pytest.mark.parametrize(
    ("make", "arguments", "code", "says"),
    [
        ("nothing", ["gone"], 8, "gone: does not exist"),
        ("empty", ["empty"], 8, "has neither real/ nor forged/"),
        ("bad", ["bad.csv"], 8, "bad.csv: has no column 'label'"),
        ("mine", ["mine"], 8, "mine.tsv: exists (pass --overwrite, or another --output)"),
        ("unreadable", ["unreadable"], 8, "holds nothing that can be read"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, make: str, arguments: list[str], code: int, says: str) -> None:
    (cli.folder / "empty").mkdir()
    (cli.folder / "bad.csv").write_text("file,lable\na.png,real\n")
    (cli.folder / "unreadable" / "real").mkdir(parents=True)
    (cli.folder / "unreadable" / "real" / "a.png").write_bytes(b"")
    if make == "mine":
        folder(cli.folder / "mine", 3, 3)
        assert cli("pack", "mine").code == 0
    done = cli("pack", *arguments)
    assert done.code == code
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(cli.folder.glob("*.partial"))


def test_frame_numbers() -> None:
    assert frame_numbers("3-5 9, 11") == {3, 4, 5, 9, 11}
    assert frame_numbers("") == frozenset()
    for wrong in ("a", "5-3", "1-99999999999", "-2"):
        with pytest.raises(ValueError, match=r".+"):
            frame_numbers(wrong)


def test_the_field_set_is_packed_and_answered(cli: Cli, shared_data: Path, demo_artifact: Path) -> None:
    """By the demo model whole, and by a real detector in its binary part."""
    done = cli("pack", shared_data / "field" / "manifest.csv", "-o", "field.tsv", "--panel", 96, "--square", "--json")
    assert done.code == 0, done.err
    total = sum(n for sides in done.json["questions"].values() for n in sides.values())
    assert total >= 300
    assert sum(any(sides.values()) for sides in done.json["questions"].values()) >= 3
    binary = sum(done.json["questions"]["BC"].values())
    weights = next((shared_data / "detectors" / "mesonet").rglob("Meso4_DF*"))
    assert cli("export", "mesonet-df", "--weights", weights, "-o", "meso").code == 0
    for model, answered in ((demo_artifact, total), ("meso", binary)):
        run = cli("run", model, "--bench", "packed", "--data", "field.tsv", "--json")
        assert run.code == 0, run.err
        summary = run.json["summary"]
        assert (summary["answered"], summary["failed"], summary["unparsed"]) == (answered, 0, 0)
        assert summary["not_asked"] == total - answered
        assert run.json["scores"]["binary"]["real"] + run.json["scores"]["binary"]["forged"] == binary
