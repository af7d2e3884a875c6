"""The letters of a question's options as first tokens: how they are spelled, and what their probabilities say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgebench.benches.base import Question


def forms(question: Question) -> dict[str, list[str]]:
    """Each option's letter, or yes and no, and how an answer may spell it."""
    if question.options:
        return {letter: [letter] for letter in question.options}
    return {word: [word, word.capitalize()] for word in ("yes", "no")}


def said_logprobs(first: Sequence[tuple[str, float]] | None, question: Question) -> dict[str, float] | None:
    """Log-probability of each option's letter (or yes and no) as the first token; None if one is not known.

    Args:
        first: the likeliest first tokens, text and natural logarithm, as a service gives them.
        question: what was asked.
    """
    found: dict[str, float] = {}
    for word, spellings in forms(question).items():
        values = [value for token, value in first or () if token.strip(" \u2581\u0120") in spellings]
        if not values:
            return None
        found[word] = round(min(0.0, float(np.logaddexp.reduce(values))), 6)
    return found


def p_forged(logprobs: dict[str, float] | None, question: Question) -> float | None:
    """P(forged) against P(real) where the question is binary; None elsewhere."""
    if logprobs is None:
        return None
    if question.yes_means is not None:
        forged, real = ("yes", "no") if question.yes_means == "forged" else ("no", "yes")
    elif question.forged_option is not None:
        forged = question.forged_option
        real = next(c for c in question.options if c != forged)
    else:
        return None
    return float(0.5 * (1 + np.tanh((logprobs[forged] - logprobs[real]) / 2)))
