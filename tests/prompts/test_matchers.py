"""Answer matchers: what both published toolkits were seen to do, and a corpus for our own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebench.errors import UsageError
from edgebench.prompts.matchers import MATCHERS, match, match_yes_no

BINARY = {"A": "AI-generated", "B": "non AI-generated"}
FOUR = {c: f"Candidate {i}" for i, c in enumerate("ABCD", 1)}
FRAMES = {"A": "[ 0, 1, 5 ]", "B": "[ 1 ]", "C": "[ 0 ]", "D": "[ 0, 1 ]"}

PUBLISHED = [
    # text, options, forensicsbench-2025, vlmevalkit-2026
    ("non AI-generated", BINARY, "Z", "Z"),
    ("The image is Non AI-Generated.", BINARY, "Z", "Z"),
    ("AI-generated", BINARY, "A", "A"),
    ("A fake image of a cat", BINARY, "A", "Z"),
    ("The answer is A because B is wrong", BINARY, "Z", "A"),
    ("a", BINARY, "Z", "Z"),
    ("<A>", BINARY, "Z", "Z"),
    ("[0, 1, 5]", FRAMES, "Z", "Z"),
    ("[ 0, 1, 5 ]", FRAMES, "A", "A"),
    ("Candidate 3", FOUR, "C", "C"),
    ("B", FOUR, "B", "B"),
    ("B.", FOUR, "B", "B"),
    ("(D)", FOUR, "D", "D"),
    ("Z", FOUR, "Z", "Z"),
    ("", FOUR, "Z", "Z"),
    ("A and B", FOUR, "Z", "Z"),
    ("I'm sorry, but without the image provided I cannot say. B", FOUR, "Z", "Z"),
    ("Failed to obtain answer via API. A", FOUR, "Z", "Z"),
]


@pytest.mark.parametrize(("text", "options", "fork", "upstream"), PUBLISHED)
def test_published_behaviour(text: str, options: dict[str, str], fork: str, upstream: str) -> None:
    assert match("forensicsbench-2025", text, options).letter == fork
    assert match("vlmevalkit-2026", text, options).letter == upstream


STRICT = [
    ("A", BINARY, "A", "letter"),
    ("B", BINARY, "B", "letter"),
    (" B.", BINARY, "B", "letter"),
    ("(B)", BINARY, "B", "letter"),
    ("<B>", BINARY, "B", "letter"),
    ("**B**", BINARY, "B", "letter"),
    ("B: non AI-generated", BINARY, "B", "letter"),
    ("B\nThe picture shows a cat.", BINARY, "B", "letter"),
    ("B non AI-generated", BINARY, "B", "content"),
    ("A AI-generated", BINARY, "A", "content"),
    ("non AI-generated", BINARY, "B", "content"),
    ("Non AI-Generated.", BINARY, "B", "content"),
    ("AI-generated", BINARY, "A", "content"),
    ("The image is non AI-generated.", BINARY, "B", "contained"),
    ("The image is AI-generated", BINARY, "A", "contained"),
    ("The image is not AI-generated", BINARY, "Z", "ambiguous"),
    ("The correct answer is B.", BINARY, "B", "stated"),
    ("The answer is A because B is wrong", BINARY, "A", "stated"),
    ("Answer: (C)", FOUR, "C", "stated"),
    ("option D", FOUR, "D", "stated"),
    ("The answer is a cat", FOUR, "Z", "none"),
    ("A fake image of a cat", BINARY, "Z", "none"),
    ("a", BINARY, "Z", "none"),
    ("[0, 1, 5]", FRAMES, "A", "content"),
    ("[ 0,1 ]", FRAMES, "D", "content"),
    ("Frames [0] are forged", FRAMES, "C", "contained"),
    ("Candidate 3", FOUR, "C", "content"),
    ("It is Candidate 3, I think", FOUR, "C", "contained"),
    ("Candidate 3 or Candidate 4", FOUR, "Z", "ambiguous"),
    ("Candidate 31", FOUR, "Z", "none"),
    ("I'm sorry, but I can't help with that.", FOUR, "Z", "refusal"),
    ("E", FOUR, "Z", "none"),
    ("", FOUR, "Z", "none"),
    ("   \n", FOUR, "Z", "none"),
]


@pytest.mark.parametrize(("text", "options", "letter", "method"), STRICT)
def test_strict(text: str, options: dict[str, str], letter: str, method: str) -> None:
    found = match("strict", text, options)
    assert (found.letter, found.method) == (letter, method)


def test_the_published_matchers_cannot_see_the_longer_option() -> None:
    """The bias that the spec names: 'non AI-generated' in words can never be right there; with ours it can."""
    for name in ("forensicsbench-2025", "vlmevalkit-2026"):
        assert match(name, "non AI-generated", BINARY).letter == "Z"
    assert match("strict", "non AI-generated", BINARY).letter == "B"


@given(st.text(max_size=200), st.sampled_from(sorted(MATCHERS)))
def test_any_text_gives_an_option_or_z_and_always_the_same(text: str, name: str) -> None:
    found = match(name, text, FOUR)
    assert found.letter in {*FOUR, "Z"}
    assert match(name, text, FOUR) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", "yes"),
        ("No.", "no"),
        ("Yes, it is forged", "yes"),
        ("I would say no", "no"),
        ("yes or no", "yes"),
        ("it is yes or no", "Z"),
        ("", "Z"),
        ("nothing", "Z"),
    ],
)
def test_yes_no(text: str, said: str) -> None:
    assert match_yes_no(text).letter == said


def test_unknown_matcher_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="forensicsbench-2025"):
        match("forensicsbench", "A", FOUR)
