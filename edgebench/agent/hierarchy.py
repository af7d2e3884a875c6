"""The check of a news picture and its caption in stages: text, then image, then whether both tell of the same.

Source: MMD-Agent of MMFakeBench (arXiv 2406.08772), in its order and with its decisions; the wording is data. The
first stage that objects ends the check, so a sample takes six calls at most. A stage may be a detector's score in
place of a language model's steps ("mixed detection"). Nothing here knows a model, a clock or the right answer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from edgebench.agent.sentences import first_sentences
from edgebench.prompts.verdicts import CLASSES, read_step
from edgebench.records import NO_ANSWER
from edgebench.trace import Call, Knowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from edgebench.agent.instructions import Instructions

STAGES: dict[str, tuple[str, ...]] = {
    "text": ("entity", "analysis", "text_verdict"),
    "image": ("description", "image_verdict"),
    "cross": ("consistency",),
}
"""Stage -> the steps of a language model, in order. The last one is the stage's conclusion."""
MOST_CALLS = 6
ENTITY_WORDS = 5
"""A longer answer names no entity."""
_DROPPED = frozenset(["a", "an", "the", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])


class Check:
    """One sample's way through the stages; `trace` holds each step as it was done, whatever comes after it."""

    def __init__(
        self,
        caption: str,
        ask: Callable[[str, str | None], Call],
        look_up: Callable[[str], Knowledge],
        instructions: Instructions,
        *,
        reader: str,
        detectors: Collection[str] = (),
    ) -> None:
        """Prepare.

        Args:
            caption: as the benchmark has it; a full stop is added where none ends it.
            ask: step and prompt -> what came back. A detector's step has no prompt.
            look_up: entity -> knowledge.
            instructions: the prompts.
            reader: how a conclusion is read; a name of `edgebench.prompts.verdicts.READERS`.
            detectors: stages that a detector decides.
        """
        self.trace: list[Call] = []
        self._ask, self._look_up, self._instructions, self._reader = ask, look_up, instructions, reader
        self._values = {"caption": ended(caption)}
        self._steps = steps(detectors)

    def run(self) -> str:
        """The class of the first stage that objects, 'original' when none does, 'Z' when the last one is unclear."""
        for step in self._steps:
            call = self._do(step)
            self.trace.append(call)
            said = read_step(self._reader, call)
            if said in CLASSES:
                return said
        return NO_ANSWER

    def _do(self, step: str) -> Call:
        if step.endswith("_detector"):
            return self._ask(step, None)
        knowledge = None
        if step == "analysis":
            entity = self._values["entity"]
            knowledge = self._look_up(entity) if entity else Knowledge(query="", status="no query")
            self._values["knowledge"] = knowledge.text or self._instructions.no_knowledge
        call = self._ask(step, self._instructions.fill(step, self._values))
        text = (call.text or "").strip()
        if step == "entity":
            self._values["entity"] = entity_of(text)
        elif step == "analysis":
            self._values["analysis"] = text
        elif step == "description":
            self._values |= {"description": text, "first_sentence": first_sentences(text, 1)}
        return replace(call, knowledge=knowledge)


def steps(detectors: Collection[str] = ()) -> list[str]:
    """The steps of a check in which those stages are detectors'. The last stage needs a description of the picture."""
    found: list[str] = []
    for stage, own in STAGES.items():
        found += [f"{stage}_detector"] if stage in detectors else own
    if "consistency" in found and "description" not in found:
        found.insert(found.index("consistency"), "description")
    return found


def ended(caption: str) -> str:
    """The caption with a full stop at its end, as the benchmark puts it into its prompts."""
    caption = caption.rstrip()
    return caption if caption.endswith(".") else caption + "."


def entity_of(reply: str) -> str:
    """The entity that a reply names as `Finish: [entity].`, in lower case; '' where it names none.

    The benchmark's rule: up to the first full stop, without articles and small number words, the first item of a
    list, five words at most. Brackets hold a name together, full stops in it included.
    """
    found = re.search(r"finish\s*:\s*(?:\[([^\]\n]+)\]|([^.\n]+))", reply, re.IGNORECASE)
    if found is None:
        return ""
    name = (found[1] or found[2]).casefold().replace(" and ", ", ").split(", ")[0]
    words = [word for word in name.strip(" \"'`*_[]().,").split() if word not in _DROPPED]
    return " ".join(words) if len(words) <= ENTITY_WORDS else ""
