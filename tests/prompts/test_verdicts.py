"""A corpus of answers: what a person reads in them, and what the released scorer does."""

from __future__ import annotations

import pytest

from edgebench.agent.instructions import load_instructions
from edgebench.errors import UsageError
from edgebench.prompts.verdicts import CONCLUSIONS, FINAL, check_reader, read_final, read_step, read_trace
from edgebench.trace import Call

ECHO = "'Finish[TEXT REFUTES].', 'Finish[IMAGE REFUTES].', 'Finish[ORIGINAL].' or 'Finish[MISMATCH].'"
LINES = "Finish[TEXT REFUTES].\nFinish[IMAGE REFUTES].\nFinish[ORIGINAL].\nFinish[MISMATCH]."
CORPUS = [
    # answer, what a person reads, what the released scorer gives
    ("Finish[TEXT REFUTES].", "textual", "textual"),
    ("Finish[IMAGE REFUTES].", "visual", "visual"),
    ("Finish[MISMATCH].", "mismatch", "mismatch"),
    ("Finish[ORIGINAL].", "original", "original"),
    ("Finish[MATCH].", "original", "original"),
    ("finish[original]", "original", "original"),
    ("**Finish[MISMATCH]**", "mismatch", "mismatch"),
    ("Finish[TEXT REFUTES].Finish[TEXT REFUTES].Finish[TEXT REFUTES].", "textual", "textual"),
    ("Thought: all is well.\nAction: Finish[ORIGINAL].", "original", "original"),
    # forms that the released scorer cannot read
    ("Finish[TEXT REFUTES] because [x] is", "textual", "Z"),
    ("Finish: [TEXT REFUTES]", "textual", "Z"),
    ("finish [ mismatch ]", "mismatch", "mismatch"),
    ("TEXT REFUTES", "textual", "Z"),
    ("Original.", "original", "Z"),
    ("The verdict is ORIGINAL", "original", "Z"),
    ("MISMATCH, not ORIGINAL", "mismatch", "Z"),
    # denials
    ("NOT Finish[TEXT REFUTES]", "Z", "textual"),
    ("It isn't Finish[TEXT REFUTES].", "Z", "textual"),
    ("It is not Finish[TEXT REFUTES] or Finish[IMAGE REFUTES].", "Z", "textual"),
    ("Finish[TEXT REFUTES] is not correct", "Z", "textual"),
    ("not Finish[MISMATCH] but Finish[ORIGINAL]", "original", "mismatch"),
    ("Finish[ORIGINAL], not Finish[MISMATCH].", "original", "mismatch"),
    ("neither Finish[TEXT REFUTES] nor Finish[IMAGE REFUTES], so Finish[ORIGINAL]", "original", "textual"),
    ("I would not say Finish[MISMATCH]. The answer is Finish[ORIGINAL].", "original", "mismatch"),
    ("Finish[TEXT REFUTES] is the wrong conclusion.", "Z", "textual"),
    ("It would be wrong to say Finish[MISMATCH].", "Z", "mismatch"),
    ("There is no reason to answer Finish[TEXT REFUTES].", "Z", "textual"),
    ("I don't think the answer is Finish[MISMATCH].", "Z", "mismatch"),
    ("I do not believe that the right answer is Finish[IMAGE REFUTES].", "Z", "visual"),
    ("Finish[TEXT REFUTES]? No. Finish[ORIGINAL].", "original", "textual"),
    ("Finish[MISMATCH] not Finish[ORIGINAL]", "mismatch", "mismatch"),
    # what is denied is something else
    ("The caption is not supported by facts: Finish[TEXT REFUTES].", "textual", "textual"),
    ("The picture cannot be trusted, Finish[IMAGE REFUTES].", "visual", "visual"),
    ("It is not real, so Finish[IMAGE REFUTES]", "visual", "visual"),
    ("Because this did not happen, Finish[TEXT REFUTES].", "textual", "textual"),
    ("The image does not fit the caption Finish[MISMATCH]", "mismatch", "mismatch"),
    ("The caption is wrong: Finish[TEXT REFUTES].", "textual", "textual"),
    ("No, the answer is Finish[ORIGINAL].", "original", "original"),
    ("Either way, Finish[ORIGINAL].", "original", "original"),
    # echoes of the instruction
    (f"Answer with {ECHO}", "Z", "textual"),
    (f"Answer with {ECHO}\nFinish[ORIGINAL].", "original", "textual"),
    (LINES, "Z", "textual"),
    (f"{LINES}\nThe answer is Finish[MISMATCH].", "mismatch", "textual"),
    ("1. Finish[TEXT REFUTES].\n2. Finish[IMAGE REFUTES].", "Z", "textual"),
    ("Finish[TEXT REFUTES]. Finish[IMAGE REFUTES].", "Z", "textual"),
    (
        "If it were false, the answer would be Finish[TEXT REFUTES]. It is true. Finish[ORIGINAL].",
        "original",
        "textual",
    ),
    ("First I thought Finish[MISMATCH]. But on reflection, the answer is Finish[ORIGINAL].", "original", "mismatch"),
    # no answer
    ("", "Z", "Z"),
    ("Finish[TEXT SUPPORTS].", "Z", "Z"),
    ("The original photograph does not match the text.", "Z", "Z"),
    ("I'm sorry, but I can't help with that.", "Z", "Z"),
]


@pytest.mark.parametrize(("text", "person", "released"), CORPUS)
def test_corpus(text: str, person: str, released: str) -> None:
    assert read_final("strict", text)[0] == person
    assert read_final("mmfakebench-2024", text)[0] == released


def test_our_own_instructions_echoed_are_no_answer() -> None:
    ours = load_instructions()
    assert read_final("strict", ours.standard)[0] == "Z"
    for name, phrase in FINAL[:4]:
        assert read_final("strict", f"{ours.standard} Finish[{phrase}].")[0] == name
    for step, phrases in CONCLUSIONS.items():
        echo = getattr(ours, step)
        assert read_step("strict", Call(step, text=echo)) == "Z"
        for name, phrase in phrases:
            assert read_step("strict", Call(step, text=f"{echo}\nFinish[{phrase}].")) == name
            assert read_step("mmfakebench-2024", Call(step, text=f"Finish[{phrase}].")) == name


def test_a_trace_is_read_again_by_either_reader() -> None:
    trace = [Call("entity", text="Finish: [x]."), Call("text_verdict", text="TEXT REFUTES")]
    assert read_trace("strict", trace) == ("textual", "text_verdict")
    assert read_trace("mmfakebench-2024", trace) == ("Z", "none"), "its stages hit what its scorer cannot read"
    assert read_step("mmfakebench-2024", trace[1]) == "textual"
    ended = [Call("text_verdict", text="Finish[TEXT SUPPORTS]."), Call("consistency", text="Finish[MATCH].")]
    assert read_trace("strict", ended) == ("original", "consistency")
    assert read_trace("mmfakebench-2024", ended) == ("original", "literal")
    scored = [Call("image_detector", score=0.2), Call("cross_detector", score=0.7)]
    assert read_trace("strict", scored) == ("mismatch", "cross_detector")
    assert read_step("strict", Call("cross_detector", score=0.2)) == "original"
    with pytest.raises(UsageError, match="option letters"):
        check_reader("vlmevalkit-2026")
