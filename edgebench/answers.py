"""From what a record holds to the answer it gives: a pure function, so that an old run can be judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebench.prompts.matchers import match, match_yes_no
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
        A letter, 'real' or 'forged', or 'Z' when the text says nothing; None and None for a failed question.
    """
    if record.error is not None or record.not_asked is not None:
        return None, None
    if record.finish == "refused":
        return NO_ANSWER, "refusal"
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
