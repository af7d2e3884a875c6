"""From what a record holds to the answer it gives: a pure function, so that an old run can be judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.prompts.matchers import match, match_yes_no
from edgebench.prompts.verdicts import CLASSES, check_reader, read_final, read_trace
from edgebench.records import NO_ANSWER

if TYPE_CHECKING:
    from edgebench.records import Record

THRESHOLD = 0.5
"""P(forged) from which a classifier's answer is 'forged'."""


def judge(record: Record, *, scoring: str, matcher: str) -> tuple[str | None, str | None]:
    """The answer of a record and how it was found.

    Args:
        record: what came back; its own `answer` and `method` are not looked at.
        scoring: 'generate' or 'logits'.
        matcher: a name of `edgebench.prompts.matchers`.

    Returns:
        A letter, 'real' or 'forged', one of MMFakeBench's classes, or 'Z' when the text says nothing; None and None
        for a failed question.
    """
    if record.error is not None or record.not_asked is not None:
        return None, None
    if record.finish == "refused":
        return NO_ANSWER, "refusal"
    if record.target in CLASSES and (record.trace or record.text is not None):
        check_reader(matcher)
        return read_trace(matcher, record.trace) if record.trace else read_final(matcher, record.text or "")
    if record.text is not None:
        if record.options:
            found = match(matcher, record.text, record.options)
            return found.letter, found.method
        said = match_yes_no(record.text)
        return {"yes": "forged", "no": "real"}.get(said.letter, NO_ANSWER), said.method
    if scoring == "logits" and record.options and record.option_logprobs:
        logprobs = record.option_logprobs
        return max(logprobs, key=lambda letter: logprobs[letter]), "logits"
    if record.score is None:
        return NO_ANSWER, "none"
    forged = record.score >= THRESHOLD
    method = "logits" if record.option_logprobs else "threshold"
    if not record.options:
        return ("forged" if forged else "real"), method
    letter = record.forged_option
    if letter is None:
        return NO_ANSWER, "none"
    return (letter if forged else next(c for c in record.options if c != letter)), method


def is_forged(record: Record) -> bool | None:
    """Whether the right answer is 'forged'; None for questions of another kind."""
    if record.target in {"real", "forged"}:
        return record.target == "forged"
    if record.target in CLASSES:
        return record.target != CLASSES[0]
    return None if record.forged_option is None else record.target == record.forged_option


def says_forged(record: Record, answer: str | None) -> bool | None:
    """Whether an answer is 'forged'; None where it says neither."""
    if answer is None or answer == NO_ANSWER:
        return None
    if answer in {"real", "forged"}:
        return answer == "forged"
    if answer in CLASSES:
        return answer != CLASSES[0]
    return None if record.forged_option is None else answer == record.forged_option


def is_right(record: Record, answer: str | None) -> bool:
    """Whether an answer is right. One that only says real or forged is held to no more than that."""
    if record.target in CLASSES and answer in {"real", "forged"}:
        return says_forged(record, answer) == is_forged(record)
    return answer == record.target
