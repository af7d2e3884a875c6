"""Answer matchers: from a model's text to an option's letter. Deterministic; none ever guesses.

`forensicsbench-2025` and `vlmevalkit-2026` do what those two toolkits do without a judge, so that scores can be
compared with scores that came from them; where they would ask a judge or draw at random, the answer is 'Z'.
`strict` is our own: it reads what a person would read, and says 'Z' when a person would hesitate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgebench.errors import UsageError, did_you_mean
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
"""What both toolkits take for a refusal."""
API_FAILURE = "Failed to obtain answer via API"
DEFAULT = "strict"


@dataclass(frozen=True)
class Match:
    """What an answer says."""

    letter: str
    """An option's letter, 'yes' or 'no', or 'Z'."""
    method: str
    """letter, stated, content, contained, refusal, says-z, ambiguous or none."""


def match(matcher: str, text: str, options: Mapping[str, str]) -> Match:
    """The option that a text names.

    Args:
        matcher: a name of `MATCHERS`.
        text: what the model wrote.
        options: letter -> option text.

    Raises:
        UsageError: no matcher of that name.
    """
    if matcher not in MATCHERS:
        raise UsageError(f"unknown answer matcher {matcher!r}", hint=did_you_mean(matcher, MATCHERS))
    return MATCHERS[matcher][0](text, options)


def match_yes_no(text: str) -> Match:
    """'yes' or 'no' when the text begins with one of them, or holds just one of them as a word."""
    words = re.findall(r"[a-z]+", text.casefold())
    if words and words[0] in {"yes", "no"}:
        return Match(words[0], "letter")
    found = {w for w in words if w in {"yes", "no"}}
    if len(found) == 1:
        return Match(found.pop(), "contained")
    return Match(NO_ANSWER, "ambiguous" if found else "none")


def _forensicsbench_2025(text: str, options: Mapping[str, str]) -> Match:
    return _letter(text, options, last=None) or _substring(text, options)


def _vlmevalkit_2026(text: str, options: Mapping[str, str]) -> Match:
    found = _letter(text, options, last=5)
    if found is not None:
        return found
    stated = re.search(r"(?:correct )?answer is\s*(?:\*\*)?\s*([A-D])\b", text, re.IGNORECASE)
    if stated and stated.group(1).upper() in options:
        return Match(stated.group(1).upper(), "stated")
    if len(text) > 2 * sum(len(option) for option in options.values()):
        return Match(NO_ANSWER, "none")
    return _substring(text, options)


def _letter(text: str, options: Mapping[str, str], *, last: int | None) -> Match | None:
    """What both toolkits look for first: a failure, a refusal, or the only option letter among the words.

    `last`: the letter counts only if it stands first among so many last words.
    """
    if API_FAILURE in text:
        return Match(NO_ANSWER, "none")
    if any(refusal in text for refusal in REFUSALS):
        return Match(NO_ANSWER, "refusal")
    tokens = _tokens(text)
    letters = [c for c in options if c in tokens]
    if len(letters) == 1 and (last is None or tokens.index(letters[0]) > len(tokens) - last):
        return Match(letters[0], "letter")
    if not letters and "Z" in tokens:
        return Match(NO_ANSWER, "says-z")
    return None


def _tokens(text: str) -> list[str]:
    return re.sub(r"[.()\[\],:;!*#{}]", " ", text).split()


def _substring(text: str, options: Mapping[str, str]) -> Match:
    lowered = text.lower()
    found = [c for c, option in options.items() if option.lower() in lowered]
    if len(found) == 1:
        return Match(found[0], "content")
    return Match(NO_ANSWER, "ambiguous" if found else "none")


_LEADING = re.compile(r"^[\s\"'`(\[*<_]*([A-Z])(?:[\"'`)\]*>_.:,;]|\s*$|\s*\n)")
_STATED = re.compile(
    r"\b(?:answer|option|choice)(?:\s+is)?\s*[:=]?\s*[\"'`(\[*<_]*([A-Z])(?![\w'-])(?!(?<=A)\s+(?!(?:because|since|as|and|but|with|for|is|due)\b)[a-z])",
    re.IGNORECASE,
)
_REFUSING = re.compile(
    r"\b(?:i(?:'m| am) sorry|sorry, (?:but )?i|i can(?:'t|not)|i am unable|i'm unable|unable to (?:answer|determine))\b",
    re.IGNORECASE,
)


def _strict(text: str, options: Mapping[str, str]) -> Match:
    leading = _LEADING.match(text)
    if leading and leading.group(1) in options:
        return Match(leading.group(1), "letter")
    plain = _plain(text)
    same = [
        c
        for c, option in options.items()
        if _plain(option) == plain or _plain(f"{c}. {option}") == plain or _plain(f"{c} {option}") == plain
    ]
    if len(same) == 1:
        return Match(same[0], "content")
    stated = {c for c in (m.group(1) for m in _STATED.finditer(text)) if c in options}
    if len(stated) == 1:
        return Match(stated.pop(), "stated")
    if stated:
        return Match(NO_ANSWER, "ambiguous")
    if any(refusal in text for refusal in REFUSALS) or _REFUSING.search(text):
        return Match(NO_ANSWER, "refusal")
    found, negated = _contained(plain, options)
    if len(found) == 1 and not negated:
        return Match(found[0], "contained")
    return Match(NO_ANSWER, "ambiguous" if found or negated else "none")


def _plain(text: str) -> str:
    """Lower case, one space between words, none within brackets and beside commas and colons, no outer marks."""
    text = re.sub(r"(?<=[\[({,:])\s+|\s+(?=[\])},:])", "", " ".join(text.casefold().split()))
    return text.strip(" .\"'`*_")


_NEGATION = re.compile(r"(?:\b(?:not|non|isn't|aren't|neither|nor)(?:\s+(?:an?|the))?[\s-])$")


def _contained(plain: str, options: Mapping[str, str]) -> tuple[list[str], bool]:
    """Options that stand in the text as whole words, outside any longer option, and whether one is negated."""
    found, negated = [], False
    for letter, option in sorted(options.items(), key=lambda item: -len(item[1])):
        if words := _plain(option):
            pattern = re.compile(rf"(?<![\w-]){re.escape(words)}(?![\w-])")
            hits = list(pattern.finditer(plain))
            denied = [hit for hit in hits if _NEGATION.search(plain[: hit.start()])]
            negated = negated or bool(denied)
            if len(hits) > len(denied):
                found.append(letter)
            plain = pattern.sub("\0", plain)
    return found, negated


MATCHERS: dict[str, tuple[Callable[[str, Mapping[str, str]], Match], str]] = {
    "strict": (_strict, "our own: what a person would read, 'Z' when a person would hesitate"),
    "forensicsbench-2025": (_forensicsbench_2025, "the Forensics-Bench fork without a judge"),
    "vlmevalkit-2026": (_vlmevalkit_2026, "VLMEvalKit of 2026 without a judge"),
}
"""Name -> (matcher, summary)."""
