"""Verdicts on a news picture and its caption: from a model's text to one of MMFakeBench's classes.

A model answers with literals such as `Finish[TEXT REFUTES].`. `strict` reads what a person would read: a literal that
is denied ("not Finish[...]") or only listed ("Finish[MATCH] or Finish[MISMATCH]", as an echo of the instruction does)
is no answer. `mmfakebench-2024` is the benchmark's released scorer: the texts are normalised as VQAv2's evaluation does
and searched for the literals in a fixed order, so that an echo and a denial count as its first literal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgebench.errors import UsageError
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.trace import Call

CLASSES = ("original", "textual", "visual", "mismatch")
"""MMFakeBench's classes; the first one is real, the others fake."""
PUBLISHED = "mmfakebench-2024"
READERS = {
    "strict": "our own: what a person would read, 'Z' when a person would hesitate",
    PUBLISHED: "MMFakeBench's released scorer, for that benchmark alone",
}
"""Name -> summary."""
Phrases = tuple[tuple[str, str], ...]
FINAL: Phrases = (
    ("textual", "TEXT REFUTES"),
    ("visual", "IMAGE REFUTES"),
    ("mismatch", "MISMATCH"),
    ("original", "ORIGINAL"),
    ("original", "MATCH"),
)
"""Class and what an answer that names it says, in the released scorer's order."""
CONCLUSIONS: dict[str, Phrases] = {
    "text_verdict": (("textual", "TEXT REFUTES"), ("", "TEXT SUPPORTS")),
    "image_verdict": (("visual", "IMAGE REFUTES"), ("", "IMAGE SUPPORTS")),
    "consistency": (("mismatch", "MISMATCH"), ("original", "MATCH")),
}
"""Step of the agent -> what its conclusion may say; '' is no objection: the next stage decides."""
DETECTORS = {"text_detector": "textual", "image_detector": "visual", "cross_detector": "mismatch"}
"""Step of a detector -> the class that it finds."""
THRESHOLD = 0.5
"""P(forged) from which a detector objects."""


def read_final(reader: str, text: str) -> tuple[str, str]:
    """The class that the standard prompt's answer names, or 'Z', and how it was found."""
    if reader == PUBLISHED:
        return _published(text)
    return _strict(text, FINAL)


def read_step(reader: str, call: Call) -> str | None:
    """What one step of a hierarchy concludes.

    Returns:
        A class: the check ends with it. '': no objection. 'Z': the conclusion says nothing that can be read.
        None: this step is no conclusion.
    """
    if call.step in DETECTORS:
        if call.score is None:
            return NO_ANSWER
        if call.score >= THRESHOLD:
            return DETECTORS[call.step]
        return "original" if call.step == "cross_detector" else ""
    phrases = CONCLUSIONS.get(call.step)
    if phrases is None:
        return None
    if reader == PUBLISHED:
        first = (call.text or "").strip().split("\n")[0].split(".")[0]
        return next((c for c, phrase in phrases if _holds(first, phrase)), NO_ANSWER)
    return _strict(call.text or "", phrases)[0]


def read_trace(reader: str, trace: Sequence[Call]) -> tuple[str, str]:
    """The class that a hierarchy ends with, or 'Z', and how it was found.

    The released scorer looks at the last answer alone. A trace that another reader ended earlier than this one would
    have says nothing here.
    """
    if reader == PUBLISHED and trace and trace[-1].step not in DETECTORS:
        return _published(trace[-1].text or "")
    for call in trace:
        said = read_step(reader, call)
        if said in CLASSES:
            return said, call.step
    return NO_ANSWER, "none"


def check_reader(matcher: str) -> None:
    """Raises UsageError where an answer matcher reads option letters, not verdicts."""
    if matcher not in READERS:
        raise UsageError(
            f"the answer matcher {matcher!r} reads option letters, MMFakeBench's answers are phrases",
            hint=f"take {' or '.join(READERS)}",
        )


_ANSWERING = (
    r"(?:(?:i|we|it|that|this|the|an?|my|our|to|as|with|for|of|be|is|are|was|would|could|should|think|believe|say|claim"
    r"|conclude|choose|answer|reply|option|verdict|conclusion|right|correct|final|best|likely|necessarily|simply"
    r"|case\s+of)\b[\s\"'`*_(:]+)"
)
"""Words that may stand between a denial and what it denies. Behind any other word it denies that: "the caption is not
supported, so Finish[...]" is an answer."""
_DENIED = re.compile(
    r"(?:\b(?:not|never|nor|neither|cannot|without|instead\s+of|rather\s+than|other\s+than)|n't"
    r"|\bno\s+(?:reason|evidence|grounds?|need|basis|sign|support)|\b(?:wrong|incorrect|mistaken)\s+to)"
    rf"[\s\"'`*_(]+{_ANSWERING}{{0,8}}\Z",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"^[\s\"'`*_)]*(?:(?:(?:is|was|would be|seems|does|do|can|could|should)\s*)?(?:the\s+|an?\s+)?"
    r"(?:not\b(?!\W*finish\b)|n't\b|wrong\b|incorrect\b)|\?\W*no\b)",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:if|otherwise|unless|either(?!\s+(?:way|case))|in case)\b", re.IGNORECASE)
_MARKS = r"[ \t\"'`*_.,;()\[\]]*"
_LISTED = re.compile(rf"^{_MARKS}(?:(?:or|and|/|,){_MARKS}(?:with[ \t]+)?)?{_MARKS}\Z", re.IGNORECASE)
_ALTERNATIVE = re.compile(rf"^{_MARKS}n?or{_MARKS}\Z", re.IGNORECASE)
_STATED = re.compile(r"\b(?:answer|conclusion|verdict|therefore|thus|so|hence|finally)\b[^.\n\[\]]*$", re.IGNORECASE)
Hit = tuple[str, int, int]


def _strict(text: str, phrases: Phrases) -> tuple[str, str]:
    """As a person reads: the one literal that is meant; 'Z' where it is none or unclear which."""
    found = _found(text, phrases)
    groups = _meant(text, found)
    # Several different literals in one breath are the instruction's list, not an answer.
    meant = [g[0] for g in groups if len({name for name, _, _ in g}) == 1]
    said = {name for name, _, _ in meant}
    if len(said) == 1:
        return said.pop(), "stated"
    if not found:
        return _whole(text, phrases)
    if not said:
        return NO_ANSWER, "listed" if groups else "denied"
    name, begin, end = meant[-1]
    alone = [_alone(text, hit) for hit in meant]
    ends = not text[end:].strip(" .\n\"'`*_)]")
    if ends and ((alone[-1] and not any(alone[:-1])) or _STATED.search(text[:begin])):
        return name, "last"
    return NO_ANSWER, "ambiguous"


def _meant(text: str, found: Sequence[Hit]) -> list[list[Hit]]:
    """The literals that are neither denied nor under a condition; those that stand together are one group."""
    groups: list[list[Hit]] = []
    before, denied_before = 0, False
    for name, begin, end in found:
        between = text[before:begin]
        lead = re.split(r"[.\n;!?]", between)[-1]
        denied = bool(_DENIED.search(lead) or _DENIED_AFTER.match(text[end:]) or _CONDITION.search(lead))
        denied = denied or (denied_before and _ALTERNATIVE.match(between) is not None)
        if not denied:
            if groups and groups[-1][-1][2] == before and _LISTED.match(between):
                groups[-1].append((name, begin, end))
            else:
                groups.append([(name, begin, end)])
        before, denied_before = end, denied
    return groups


def _alone(text: str, hit: Hit) -> bool:
    """Whether a literal has its line for itself."""
    line = text[: hit[1]].rsplit("\n", 1)[-1] + text[hit[2] :].split("\n", 1)[0]
    return not re.sub(r"[\W_]+", "", line)


def _found(text: str, phrases: Phrases) -> list[Hit]:
    """Every literal, in order: class, begin, end. `Finish` may be missing where the brackets are there."""
    hits = []
    for name, phrase in phrases:
        words = r"[\s_-]+".join(phrase.split())
        mark = r"[\"'`*_\s]*"
        bracketed = rf"(?:\bfinish\b{mark}:?{mark})?\[{mark}{words}{mark}\]|\bfinish\b{mark}:{mark}{words}\b"
        hits += [(name, m.start(), m.end()) for m in re.finditer(bracketed, text, re.IGNORECASE)]
    if not hits:
        # Bare words only in the capitals of the literal: in lower case they are words like any other.
        for name, phrase in phrases:
            words = r"[\s_-]+".join(phrase.split())
            hits += [(name, m.start(), m.end()) for m in re.finditer(rf"(?<![\w-]){words}(?![\w-])", text)]
    return sorted(hits, key=lambda hit: hit[1])


def _whole(text: str, phrases: Phrases) -> tuple[str, str]:
    """An answer that is nothing but the literal's words, in any case."""
    plain = " ".join(re.findall(r"[a-z]+", text.casefold()))
    for name, phrase in phrases:
        if plain.removeprefix("finish ").removeprefix("answer ") == phrase.casefold():
            return name, "whole"
    return NO_ANSWER, "none"


# The released scorer. Its normalisation is that of the VQAv2 evaluation (contractions left out: they cannot make or
# break a literal).
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_DIGIT_COMMA = re.compile(r"\d,\d")
_PERIOD = re.compile(r"(?!<=\d)(\.)(?!\d)")
_NUMBERS = dict(
    zip(
        ["none", "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
        [0, *range(11)],
        strict=True,
    )
)


def _normalised(text: str) -> str:
    text = text.replace("\n", " ").replace("\t", " ").strip()
    kept = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        kept = kept.replace(mark, "" if beside_space or _DIGIT_COMMA.search(text) else " ")
    kept = _PERIOD.sub("", kept, count=32)
    words = [str(_NUMBERS.get(word, word)) for word in kept.lower().split()]
    return " ".join(word for word in words if word not in {"a", "an", "the"})


def _holds(text: str, phrase: str) -> bool:
    return re.search(rf"\b{re.escape(_normalised(phrase))}\b", _normalised(text)) is not None


def _published(text: str) -> tuple[str, str]:
    said = (name for name, phrase in FINAL if _holds(text, f"Finish[{phrase}]"))
    found = next(said, None)
    return (NO_ANSWER, "none") if found is None else (found, "literal")
