"""News pictures with captions in MMFakeBench's released layouts, made on the spot. The captions were written for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests import twins


@dataclass(frozen=True)
class News:
    folder: str
    fake_cls: str
    text: str
    text_source: str = ""
    suffix: str = "jpg"


TARGETS = {
    "original": "original",
    "textual_veracity_distortion": "textual",
    "visual_veracity_distortion": "visual",
    "mismatch": "mismatch",
}
SAMPLES = (
    News("bbc", "original", "A ferry leaves the harbour of Oban on a calm morning", "VisualNews"),
    News("fever_AI", "textual_veracity_distortion", "The Eiffel Tower was built in Rome in 1950.", "Fever"),
    News("Fakeddit_photo_edit", "visual_veracity_distortion", "A shark swims along a flooded road", "Fakeddit"),
    News("Newsclipings_person", "mismatch", "The minister greets farmers at the market", "Newsclipings", "jpeg"),
    News("coco", "original", 'Two dogs {caption} sleep on a "red" sofa', "MS-COCO"),
    News("chatgpt_match", "textual_veracity_distortion", "Doctors admit that water cures every illness", "GPT", "png"),
    News("antifact_image_generation", "visual_veracity_distortion", "A horse with six legs crosses a bridge"),
    News("coco_text_edit", "mismatch", "A cat sits beside <image> an empty bowl", "COCO-Counterfactuals"),
    News("guardian", "original", "Rain stops play on the second day at Lord's.", "VisualNews"),
    News("gossipcop_match", "textual_veracity_distortion", "The singer sells her island to a penguin", "Gossipcop"),
)
LAYOUTS = ("beside", "doubled", "source", "source beside")


def write(
    root: Path,
    split: str = "val",
    layout: str = "beside",
    listed: bool = False,
    samples: Sequence[News] = SAMPLES,
    photographs: Sequence[Path] = (),
) -> Path:
    """The JSON file of a split with its pictures.

    beside: the JSON beside the split's folder. doubled: that folder once more in itself. source: the JSON in the
    split's source/. source beside: source/ beside the split's folder. Photographs are taken in turn; without them the
    pictures are noise.
    """
    name = f"MMFakeBench_{split}"
    images = root / name / name if layout == "doubled" else root / name
    path = {"source": images / "source", "source beside": root / "source"}.get(layout, root) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, news in enumerate(samples):
        kind = "real" if news.fake_cls == "original" else "fake"
        relative = f"{kind}/{news.folder}_{split}_50/{news.folder}_{number // len(SAMPLES)}.{news.suffix}"
        target = images / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if photographs:
            with Image.open(photographs[number % len(photographs)]) as photograph:
                photograph.convert("RGB").save(target)
        else:
            twins.picture(number).save(target)
        said = "True" if kind == "real" else "Fake"
        rows.append(
            {
                "image_path": f"/{relative}",
                "text": news.text,
                "text_source": news.text_source,
                "image_source": news.text_source,
                "gt_answers": [said] if listed else said,
                "fake_cls": news.fake_cls,
            }
        )
    path.write_text(json.dumps(rows))
    return path
