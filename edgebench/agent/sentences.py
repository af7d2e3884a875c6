"""The first sentences of a text."""

from __future__ import annotations

import re

LONGEST = 1500
"""Characters of an article that a prompt takes at most."""
_END = re.compile(
    r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])"
    r"|(?<=[。！？])"
)
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Gen|Gov|Sen|Rep|No|vs|c|ca|e\.g|i\.e)|\b[A-Z])\.$")


def first_sentences(text: str, count: int) -> str:
    """At most so many sentences, on one line. Initials and titles such as 'J.' or 'Dr.' end none."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    found, begin = 0, 0
    for end in _END.finditer(text):
        if _ABBREVIATION.search(text[begin : end.start()].rstrip("\"')]")):
            continue
        found += 1
        begin = end.end()
        if found == count:
            return text[: end.start()].strip()
    return text


def article(text: str, sentences: int = 5) -> str:
    """The beginning of an article: paragraphs of more than two words, five sentences, cut at a word's end."""
    paragraphs = [p for p in text.splitlines() if len(p.split()) > 2]
    found = first_sentences("\n".join(paragraphs), sentences)
    return found if len(found) <= LONGEST else found[:LONGEST].rsplit(" ", 1)[0]
