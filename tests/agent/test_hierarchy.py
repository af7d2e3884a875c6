"""The agent's stages by scripted replies: which steps are asked, in which order, with what in them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from edgebench.agent.hierarchy import MOST_CALLS, Check, ended, entity_of, steps
from edgebench.agent.instructions import load_instructions
from edgebench.agent.sentences import article, first_sentences
from edgebench.errors import ConfigError, SampleError
from edgebench.trace import Call, Knowledge

ALL = ["entity", "analysis", "text_verdict", "description", "image_verdict", "consistency"]
REPLIES = {
    "entity": "Finish: [The Eiffel Tower].",
    "analysis": "The article says nothing against it.",
    "text_verdict": "Finish[TEXT SUPPORTS].",
    "description": "A tower at night. The lamp posts bend upwards.",
    "image_verdict": "Finish[IMAGE SUPPORTS].",
    "consistency": "Finish[MATCH].",
}


def checked(replies: dict[str, str], detectors: dict[str, float] | None = None) -> tuple[str, Check, list[str]]:
    looked_up: list[str] = []

    def ask(step: str, prompt: str | None) -> Call:
        if prompt is None:
            return Call(step, score=(detectors or {})[step.removesuffix("_detector")])
        return Call(step, prompt=prompt, text=replies[step])

    def look_up(query: str) -> Knowledge:
        looked_up.append(query)
        return Knowledge(query, "found", text="The tower {caption} is in Paris.")

    check = Check("A tower in Rome", ask, look_up, load_instructions(), reader="strict", detectors=detectors or ())
    return check.run(), check, looked_up


@pytest.mark.parametrize(
    ("change", "said", "asked"),
    [
        ({}, "original", ALL),
        ({"text_verdict": "Finish[TEXT REFUTES]."}, "textual", ALL[:3]),
        ({"image_verdict": "Finish[IMAGE REFUTES]."}, "visual", ALL[:5]),
        ({"consistency": "Finish[MISMATCH]."}, "mismatch", ALL),
        ({"consistency": "They do."}, "Z", ALL),
        ({"text_verdict": "", "image_verdict": "no idea"}, "original", ALL),
        ({"text_verdict": "It is not Finish[TEXT REFUTES]."}, "original", ALL),
    ],
)
def test_every_path(change: dict[str, str], said: str, asked: list[str]) -> None:
    answer, check, looked_up = checked(REPLIES | change)
    assert answer == said
    assert [call.step for call in check.trace] == asked
    assert len(check.trace) <= MOST_CALLS
    assert looked_up == ["eiffel tower"]
    prompts = {call.step: call.prompt or "" for call in check.trace}
    assert 'Caption: "A tower in Rome."' in prompts["entity"], "a full stop is added"
    assert "The tower {caption} is in Paris." in prompts["analysis"], "what is put in is not searched for places again"
    assert REPLIES["analysis"] in prompts["text_verdict"]
    if "consistency" in prompts:
        assert "A tower at night." in prompts["consistency"]
        assert "lamp posts" not in prompts["consistency"], "the first sentence alone"
        assert "Rome" not in prompts["description"], "the picture is judged by itself"


def test_no_combination_of_replies_takes_more_than_six_calls() -> None:
    options = ("Finish[TEXT REFUTES].", "Finish[IMAGE REFUTES].", "Finish[MISMATCH].", "Finish: [x].", "", "?" * 3000)
    for replies in itertools.product(options, repeat=3):
        script = dict(zip(("text_verdict", "image_verdict", "consistency"), replies, strict=True))
        answer, check, _ = checked(REPLIES | script)
        assert len(check.trace) <= MOST_CALLS
        assert answer in {"original", "textual", "visual", "mismatch", "Z"}


def test_without_an_entity_nothing_is_looked_up() -> None:
    answer, check, looked_up = checked(REPLIES | {"entity": "I cannot tell."})
    assert answer == "original"
    assert looked_up == []
    known = check.trace[1].knowledge
    assert known is not None
    assert known.status == "no query"
    assert "no article was found" in (check.trace[1].prompt or "")


def test_detectors_take_stages() -> None:
    for scores, said, asked in (
        ({"text": 0.9}, "textual", ["text_detector"]),
        ({"text": 0.1, "image": 0.5}, "visual", ["text_detector", "image_detector"]),
        ({"text": 0.1, "image": 0.1, "cross": 0.9}, "mismatch", [f"{s}_detector" for s in ("text", "image", "cross")]),
        ({"text": 0.1, "image": 0.1}, "original", ["text_detector", "image_detector", "description", "consistency"]),
        ({"image": 0.9}, "visual", [*ALL[:3], "image_detector"]),
    ):
        answer, check, _ = checked(REPLIES, scores)
        assert answer == said
        assert [call.step for call in check.trace] == asked
    assert all(
        len(steps(own)) <= MOST_CALLS for n in range(4) for own in itertools.combinations(("text", "image", "cross"), n)
    )


def test_a_failure_keeps_the_steps_before_it() -> None:
    def ask(step: str, prompt: str | None) -> Call:
        if step == "text_verdict":
            raise SampleError("the prompt is too long")
        return Call(step, prompt=prompt, text=REPLIES[step])

    check = Check("x", ask, lambda query: Knowledge(query, "nothing"), load_instructions(), reader="strict")
    with pytest.raises(SampleError):
        check.run()
    assert [call.step for call in check.trace] == ["entity", "analysis"]


@pytest.mark.parametrize(
    ("reply", "entity"),
    [
        ("Finish: [The Eiffel Tower].", "eiffel tower"),
        ("Thought. Finish: Donald Trump and Joe Biden.", "donald trump"),
        ("finish: two U.S. senators", "u"),
        ("Finish: [U.S. Senate].", "u.s. senate"),
        ("Finish: [a very long name of six words here].", ""),
        ("Finish: [].", ""),
        ("The Eiffel Tower.", ""),
        ("Finish: Paris, France", "paris"),
    ],
)
def test_entities(reply: str, entity: str) -> None:
    assert entity_of(reply) == entity


def test_sentences() -> None:
    text = "Dr. J. Smith was born in 1.5 hours. He left! “So?” Never. E.g. this. Last one. Sixth"
    assert first_sentences(text, 1) == "Dr. J. Smith was born in 1.5 hours."
    assert first_sentences("one line\nand another without an end", 3) == "one line and another without an end"
    assert first_sentences("ab\x00c\u202e. Next.", 1) == "ab c ."
    assert article("Title\n\nA first sentence. A second one.\nSee also\n", 1) == "A first sentence."
    assert len(article("word " * 4000)) <= 1500
    assert ended("no stop ") == "no stop."
    assert ended("stop. ") == "stop."


def test_instructions_of_ones_own(tmp_path: Path) -> None:
    ours = load_instructions()
    path = tmp_path / "mine.yaml"
    lines = {k: v for k, v in vars(ours).items() if k != "sha256"} | {"name": "mine"}
    path.write_text("\n".join(f"{k}: {v!r}".replace("\\n", " ") for k, v in lines.items()))
    assert load_instructions(str(path)).label.startswith("mine@")
    path.write_text("\n".join(f"{k}: text" for k in lines))
    with pytest.raises(ConfigError, match=r"'standard' has no \{caption\}"):
        load_instructions(str(path))
