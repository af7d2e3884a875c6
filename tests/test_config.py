"""Strict YAML: what PyYAML lets through, and what a user may get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebench.config import build, read_yaml
from edgebench.errors import ConfigError
from edgebench.recipes import Recipe, load_recipe

GOOD = "name: mine\nsummary: x\nfamily: classifier\nnetwork: meso4\nsource: x\nlicence: x\npreprocess:\n  kind: resize\n  height: 8\n  width: 8\n"


def recipe(folder: Path, text: str) -> Recipe:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_recipe(str(path))


def test_numbers_and_words_mean_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1e-3\nb: no\nc: true\nd: 1\ne: .5\nf: 'x'\n")
    assert read_yaml(path) == {"a": 0.001, "b": "no", "c": True, "d": 1, "e": 0.5, "f": "x"}


def test_a_good_recipe(tmp_path: Path) -> None:
    assert recipe(tmp_path, GOOD).preprocess is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "namee: x\n", "did you mean 'name'"),
        (GOOD + "name: again\n", "twice"),
        (GOOD.replace("summary: x\n", ""), "'summary' is missing"),
        (GOOD.replace("height: 8", "height: eight"), "preprocess: height: should be int"),
        (GOOD.replace("height: 8", "height: true"), "height: should be int"),
        (GOOD.replace("height: 8", "height: 0"), "must be positive"),
        (GOOD.replace("kind: resize", "kind: stretch"), "'stretch' is not one of"),
        (GOOD.replace("kind: resize", "kind: pad_square"), "needs 'pad_colour'"),
        (GOOD.replace("family: classifier", "family: llava"), "needs 'prompt'"),
        (GOOD.replace("network: meso4\n", ""), "needs 'network'"),
        (GOOD.replace("name: mine", "name: yours"), "is called 'yours' inside"),
        (GOOD + "parity: {fp32: {max_abs: tiny}}\n", "should be float"),
        ("- a\n- b\n", "not a mapping"),
        ("a: [1\n", "mine.yaml"),
        ("a: !!python/object/apply:os.system ['true']\n", "mine.yaml"),
        ("", "not a mapping"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe(tmp_path, text)
    assert says in str(caught.value)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_build_refuses_what_is_no_mapping() -> None:
    with pytest.raises(ConfigError, match="should be a mapping"):
        build(Recipe, [], where="here")
