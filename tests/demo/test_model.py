"""The demo model's folder: complete, small, loadable, and as good as its card says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")

from edgebench.demo.panels import GAP, TITLE
from edgebench.demo.scenes import TILE
from tests.conftest import rarely

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "edgebench" / "demo" / "model"
CHANCE = {"BC": 0.5, "SLS": 0.25, "SLD": 0.25, "TL": 0.25}


def read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((MODEL / name).read_text(encoding="utf-8"))
    return value


def test_small_enough() -> None:
    assert (MODEL / "model.safetensors").stat().st_size <= 10_000_000


def test_processor_is_that_of_the_composites() -> None:
    processor = read("preprocessor_config.json")
    assert (processor["kind"], processor["tile"], processor["gap"], processor["title"]) == (
        "tile_rows",
        TILE,
        GAP,
        TITLE,
    )
    assert (processor["mean"], processor["std"]) == ([0.5] * 3, [0.25] * 3)
    assert processor["tile_suffix"] == "{tile}\n"


def test_tokenizer_reads_prompts_word_by_word() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    config = read("config.json")
    assert tokenizer.token_to_id("<image>") == config.get("image_token_id", config.get("image_token_index"))
    text = "<s>USER:<image>0\n[ 12, 7 ]\nA. Candidate 1 ASSISTANT:"
    tokens = tokenizer.encode(text, add_special_tokens=False).tokens
    assert tokens == [
        "<s>",
        "USER",
        ":",
        "<image>",
        "0",
        "\n",
        "[",
        "12",
        ",",
        "7",
        "]",
        "\n",
        "A",
        ".",
        "Candidate",
        "1",
        "ASSISTANT",
        ":",
    ]
    assert tokenizer.decode([tokenizer.token_to_id("B"), tokenizer.token_to_id("</s>")]) == "B"


def test_every_word_of_the_mini_benchmark_is_known() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from edgebench.demo import questions
    from edgebench.demo.scenes import ATTRIBUTES

    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    texts = [
        questions.IMAGE,
        questions.VIDEO,
        questions.IMAGE_TEXT,
        questions.MASKS,
        questions.MASK_SETS,
        questions.FRAMES,
    ]
    texts += [
        questions.BOXES,
        questions.BOXES_TEXT.format(caption="", length=7),
        *questions.GENERATED,
        *questions.MANIPULATED,
    ]
    texts += [word for words in ATTRIBUTES for word in words]
    for text in texts:
        assert "<unk>" not in tokenizer.encode(text.replace("{caption}", "")).tokens, text


def test_template_makes_the_prompt_of_the_training() -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        read("tokenizer_config.json")["chat_template"]
    )
    content = [{"type": "image"}, {"type": "text", "text": "What?"}]
    out = template.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True, bos_token="<s>")
    assert out == "<s>USER:<image>What? ASSISTANT:"


def test_card_says_what_was_measured() -> None:
    card = (MODEL / "MODEL_CARD.md").read_text(encoding="utf-8")
    measured = read("scores.json")
    for task in CHANCE:
        row = re.search(rf"^\| {task} \|(.+)\|$", card, re.MULTILINE)
        assert row is not None, task
        cells = [cell.strip() for cell in row.group(1).split("|")]
        found = measured["plain"][task]
        assert cells[0] == str(found["n"])
        assert cells[2] == f"{found['accuracy']:.3f}"
        assert cells[3] == f"[{found['low']:.3f}, {found['high']:.3f}]"
        assert cells[5] == f"{measured['shuffled'][task]['accuracy']:.3f}"
    assert f"{measured['plain']['BC']['balanced']:.3f}" in card


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whole", [False, rarely(True)])
def test_measured_again_and_at_chance_with_shuffled_pictures(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions about one picture, or the whole table."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "training"))
    import evaluate

    measured = read("scores.json")
    model, tokenizer = evaluate.load_checkpoint(MODEL)
    if not whole:
        asked = [(e.category, d) for e, d in evaluate.drafts() if evaluate.group_of(e.category) == "BC RGB"]
        drafts = [d for _, d in asked]
        plain, blind = (
            evaluate.table(asked, evaluate.answers(model, tokenizer, seen))["BC RGB"]
            for seen in (drafts, evaluate.shuffled(drafts, 0))
        )
        known = measured["plain"]["BC RGB"]
        assert plain["n"] == known["n"]
        assert plain["accuracy"] == pytest.approx(known["accuracy"], abs=0.015)
        assert abs(blind["accuracy"] - CHANCE["BC"]) < 3 * (0.25 / blind["n"]) ** 0.5, blind
        return
    found = evaluate.scores(model, tokenizer)
    for task, chance in CHANCE.items():
        assert found["plain"][task]["accuracy"] == pytest.approx(measured["plain"][task]["accuracy"], abs=0.015)
        blind = found["shuffled"][task]
        assert blind["low"] <= chance <= blind["high"], (task, blind)
    assert found["plain"]["BC"]["balanced"] >= 0.72
    assert found["plain"]["TL"]["low"] > CHANCE["TL"]
    assert np.isfinite(found["jpeg75"]["BC"]["accuracy"])
