"""Prompts as token ids: placeholders, tiles, start token, hostile text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgebench.benches.base import Question
from edgebench.errors import ArtifactError, SampleError
from edgebench.manifest import FileFact, ImageTokens, Text
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.placing import Placing
from tests import twins

QUESTION = Question("What is the authenticity of the image?", {"A": "AI-generated", "B": "non AI-generated"})


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, Path]:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    twins.tokenizer().save(str(path))
    return (
        Text(
            tokenizer=FileFact("tokenizer.json", 1, "x"),
            chat_template=twins.CHAT_TEMPLATE,
            images=ImageTokens("<image>", 4, per_tile=4),
            bos_token="<s>",
            eos_token="</s>",
            eos_token_ids=(2,),
            vocab_size=100,
            context_length=512,
            prompt_style="llava",
            max_new_tokens=8,
        ),
        path,
    )


def test_one_image(text: tuple[Text, Path]) -> None:
    conversation = Conversation(*text)
    prompt = conversation.prompt(QUESTION, [Placing(1, 4)])
    assert prompt.startswith("USER: " + "<image>" * 4 + "\nWhat is")
    assert prompt.endswith("directly. ASSISTANT:")
    ids = conversation.encode(prompt)
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert ids.count(4) == 4


def test_tiles_are_numbered_where_the_model_wants_it(text: tuple[Text, Path]) -> None:
    conversation = Conversation(replace(text[0], images=ImageTokens("<image>", 4, 2, tile_suffix="{tile}\n")), text[1])
    assert "<image><image>0\n<image><image>1\n<image><image>2\n" in conversation.prompt(QUESTION, [Placing(3, 6)])
    assert conversation.prompt(QUESTION, [Placing(1, 2)] * 2).count("<image>") == 4


def test_a_template_that_writes_the_start_token_gets_no_second_one(text: tuple[Text, Path]) -> None:
    conversation = Conversation(replace(text[0], chat_template="{{ bos_token }}" + twins.CHAT_TEMPLATE), text[1])
    assert conversation.encode(conversation.prompt(QUESTION, [Placing(1, 4)])).count(1) == 1


def test_a_question_cannot_place_an_image(text: tuple[Text, Path]) -> None:
    conversation = Conversation(*text)
    asked = Question("What is <image> this?", {"A": "<image>", "B": "x"})
    assert conversation.prompt(asked, [Placing(1, 4)]).count("<image>") == 4


def test_a_template_that_forgets_the_image(text: tuple[Text, Path]) -> None:
    conversation = Conversation(replace(text[0], chat_template="hello"), text[1])
    with pytest.raises(SampleError, match="placed 0 images"):
        conversation.prompt(QUESTION, [Placing(1, 4)])


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{% for x in range(3) %}{{ raise_exception('no') }}{% endfor %}",
        "{{ nothing.there }}",
    ],
)
def test_a_hostile_template_is_an_error_not_an_escape(text: tuple[Text, Path], template: str) -> None:
    conversation = Conversation(replace(text[0], chat_template=template), text[1])
    with pytest.raises(SampleError, match="chat template"):
        conversation.prompt(QUESTION, [])


def test_damaged_template_and_tokenizer(text: tuple[Text, Path], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="chat template"):
        Conversation(replace(text[0], chat_template="{% for %}"), text[1])
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{")
    with pytest.raises(ArtifactError, match="no tokenizer"):
        Conversation(text[0], broken)


def test_first_ids(text: tuple[Text, Path]) -> None:
    conversation = Conversation(*text)
    assert len(conversation.first_ids("A")) == 1
    assert conversation.decode(conversation.first_ids("A")) == "A"
    assert conversation.first_ids("Q") == [], "an unknown word is no token of its own"
    assert conversation.first_ids("A B") == []
