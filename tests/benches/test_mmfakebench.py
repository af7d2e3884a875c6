"""MMFakeBench's files in every released form, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgebench.benches.mmfakebench import MMFakeBench
from edgebench.errors import DataError
from tests import news


@pytest.mark.parametrize("layout", news.LAYOUTS)
@pytest.mark.parametrize("listed", [False, True])
def test_every_layout_and_form(tmp_path: Path, layout: str, listed: bool) -> None:
    path = news.write(tmp_path, split="test", layout=layout, listed=listed)
    for given in (tmp_path, path):
        bench = MMFakeBench.open(given)
        samples = list(bench.samples())
        assert bench.count() == len(samples) == len(news.SAMPLES)
        assert [(s.category, s.target) for s in samples] == [(s.folder, news.TARGETS[s.fake_cls]) for s in news.SAMPLES]
        assert all(s.problem is None and s.images[0].path is not None for s in samples)
        assert [s.question.text for s in samples] == [s.text for s in news.SAMPLES]
        assert samples[0].id == "real/bbc_test_50/bbc_0.jpg"
    facts = {s.category: s.facts for s in samples}
    assert facts["fever_AI"]["type"] == "artificial rumour"
    assert facts["bbc"]["type"] == "real"
    assert "text_source" not in facts["antifact_image_generation"], "blank in the released data"
    assert facts["chatgpt_match"]["format"] == "png"


def test_what_stands_beside_decides_and_limits_hold(tmp_path: Path) -> None:
    news.write(tmp_path, split="val")
    whole = MMFakeBench.open(tmp_path)
    assert MMFakeBench.open(tmp_path, limit=3).count() == 3
    assert MMFakeBench.open(tmp_path, limit=3).data().fingerprint != whole.data().fingerprint
    news.write(tmp_path, split="test")
    with pytest.raises(DataError, match="holds several JSON files") as caught:
        MMFakeBench.open(tmp_path)
    assert "MMFakeBench_test.json, MMFakeBench_val.json" in str(caught.value)
    assert MMFakeBench.open(tmp_path / "MMFakeBench_val.json").data().fingerprint == whole.data().fingerprint


def test_missing_images_are_named_before_the_run(tmp_path: Path) -> None:
    path = news.write(tmp_path)
    for image in list(tmp_path.rglob("fever_AI*/*"))[:1]:
        image.unlink()
    with pytest.raises(DataError, match=r"1 of 10 images are missing, such as fake/fever_AI_val_50/fever_AI_0\.jpg"):
        MMFakeBench.open(path)
    for image in [p for p in tmp_path.rglob("*") if p.suffix in {".jpg", ".png", ".jpeg"}]:
        image.unlink()
    with pytest.raises(DataError, match="its images are in none of"):
        MMFakeBench.open(path)


def changed(tmp_path: Path, **values: Any) -> str | None:
    path = news.write(tmp_path)
    rows = json.loads(path.read_text())
    rows[1] |= values
    path.write_text(json.dumps(rows))
    return list(MMFakeBench.open(path).samples())[1].problem


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"gt_answers": "False"}, None),
        ({"gt_answers": ["True"]}, "gt_answers says 'True' and fake_cls 'textual_veracity_distortion'"),
        ({"gt_answers": ["Fake", "Fake"]}, "gt_answers is"),
        ({"gt_answers": None}, "gt_answers is None"),
        ({"fake_cls": "cross"}, "fake_cls is 'cross'"),
        ({"text": " "}, "has no caption"),
        ({"image_path": "/../../secret.jpg"}, "outside its folder"),
        ({"image_path": 7}, "is missing"),
    ],
)
def test_samples_that_contradict_themselves(tmp_path: Path, values: dict[str, Any], problem: str | None) -> None:
    if problem == "is missing":
        with pytest.raises(DataError, match="1 of 10 images are missing, such as sample 1"):
            changed(tmp_path, **values)
        return
    found = changed(tmp_path, **values)
    assert (found is None) if problem is None else (found is not None and problem in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("{}", "is not a list of samples"), ("[]", "is not a list"), ('[{"text": ""}]', "have no")],
)
def test_files_of_another_form(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "MMFakeBench_val.json").write_text(text)
    with pytest.raises(DataError, match=message):
        MMFakeBench.open(tmp_path)
    with pytest.raises(DataError, match="needs --data"):
        MMFakeBench.open(None)
    with pytest.raises(DataError, match="does not exist"):
        MMFakeBench.open(tmp_path / "nowhere")
