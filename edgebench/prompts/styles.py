"""Prompt styles by model family, as data.

Source: the prompts that the Forensics-Bench fork of VLMEvalKit builds for multiple-choice questions. A style
gives the user's message; the chat template of the artifact puts it into a conversation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgebench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from edgebench.benches.base import Question

DIRECT = "\nAnswer with the option's letter from the given choices directly."
DIRECT_CHINESE = "\n请直接回答选项字母。"
YES_NO = "\nAnswer yes or no."
_CHINESE = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True)
class Style:
    """How one model family is asked a multiple-choice question."""

    summary: str
    images_first: bool = True
    hint: str = "{hint}\n"
    question: str = "{question}"
    option: str = "\n{letter}. {text}"
    options_head: str = ""
    ending: str = DIRECT
    ending_chinese: str = DIRECT_CHINESE
    """In place of `ending` when the text so far holds Chinese characters."""
    after: str = ""
    """Behind the ending, always."""

    def text(self, question: Question) -> str:
        """The user's text for one question."""
        if question.verbatim:
            return question.text
        if question.yes_means is not None:
            return f"{question.text}{YES_NO}"
        hint = self.hint.format(hint=question.hint) if question.hint is not None else ""
        asked = self.question.format(question=question.text)
        text = hint + asked + self.options_head
        text += "".join(self.option.format(letter=letter, text=option) for letter, option in question.options.items())
        return text + (self.ending_chinese if _CHINESE.search(text) else self.ending) + self.after


_DEFAULT = Style(
    "VLMEvalKit's own (GPT-4o, Gemini, Claude, Qwen-VL-Chat, Yi-VL, DeepSeek-VL, VisualGLM, InstructBLIP)",
    hint="Hint: {hint}\n",
    question="Question: {question}\n",
    options_head="Options:\n",
    option="{letter}. {text}\n",
    ending="Please select the correct answer from the options above. \n",
    ending_chinese="Please select the correct answer from the options above. \n",
)

STYLES: dict[str, Style] = {
    "default": _DEFAULT,
    "monkey": replace(_DEFAULT, summary="the default prompt and ' Answer: ' (Monkey)", after=" Answer: "),
    "llava": Style("images, then text (LLaVA-1.5, LLaVA-NeXT, ShareGPT4V)"),
    "llava-xtuner": Style("text, then images (LLaVA-XTuner, InternVL-Chat)", images_first=False),
    "cogvlm": Style("text, then images, and a short answer (CogVLM)", images_first=False, after="\nShort Answer."),
    "mplug-owl2": Style(
        "text, then images (mPLUG-Owl2)",
        images_first=False,
        hint="Hint: {hint}\n",
        question="{question}\n",
        option="{letter}. {text}\n",
        ending="\nAnswer with the option\u2019s letter from the given choices directly. ",
        ending_chinese="\nAnswer with the option\u2019s letter from the given choices directly. ",
    ),
}


def style(name: str) -> Style:
    """The style of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in STYLES:
        raise UsageError(f"unknown prompt style {name!r}", hint=did_you_mean(name, STYLES))
    return STYLES[name]


def message(name: str, question: Question, images: int) -> list[dict[str, Any]]:
    """One user message with `images` image parts and the text, in the order of the style."""
    chosen = style(name)
    text = [{"type": "text", "text": chosen.text(question)}]
    pictures = [{"type": "image"}] * images
    return [{"role": "user", "content": pictures + text if chosen.images_first else text + pictures}]
