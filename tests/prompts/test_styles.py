"""Prompt styles: the published words, to the letter."""

from __future__ import annotations

import pytest

from edgebench.benches.base import Question
from edgebench.errors import UsageError
from edgebench.prompts.styles import STYLES, message, style

ASKED = Question("What is it?", {"A": "AI-generated", "B": "non AI-generated"})
HINTED = Question("What is it?", {"A": "x", "B": "y"}, hint="Look closely.")
DIRECT = "\nAnswer with the option's letter from the given choices directly."


def test_default() -> None:
    assert style("default").text(ASKED) == (
        "Question: What is it?\nOptions:\nA. AI-generated\nB. non AI-generated\nPlease select the correct answer from the options above. \n"
    )
    assert style("default").text(HINTED).startswith("Hint: Look closely.\nQuestion: What is it?\n")


def test_llava() -> None:
    assert style("llava").text(ASKED) == f"What is it?\nA. AI-generated\nB. non AI-generated{DIRECT}"
    assert style("llava").text(HINTED) == f"Look closely.\nWhat is it?\nA. x\nB. y{DIRECT}"
    assert style("cogvlm").text(ASKED).endswith(DIRECT + "\nShort Answer.")
    assert style("monkey").text(ASKED).endswith("options above. \n Answer: ")


def test_mplug_owl2_has_its_own_apostrophe() -> None:
    text = style("mplug-owl2").text(ASKED)
    assert text.startswith("What is it?\nA. AI-generated\nB. non AI-generated\n\nAnswer with the option\u2019s letter")
    assert text.endswith("directly. ")


def test_chinese_changes_the_ending() -> None:
    assert style("llava").text(Question("这是什么?", {"A": "x"})).endswith("\n请直接回答选项字母。")


def test_yes_no_question() -> None:
    assert style("llava").text(Question("Is it forged?", yes_means="forged")) == "Is it forged?\nAnswer yes or no."


@pytest.mark.parametrize("name", STYLES)
def test_order_of_images_and_text(name: str) -> None:
    kinds = [part["type"] for part in message(name, ASKED, 2)[0]["content"]]
    assert kinds == (["image", "image", "text"] if STYLES[name].images_first else ["text", "image", "image"])


def test_unknown_style() -> None:
    with pytest.raises(UsageError, match="llava"):
        style("lava")
