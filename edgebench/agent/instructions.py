"""The texts that a model is asked with, as data: `instructions/*.yaml`, or a file of the user's own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from edgebench.config import build, find_yaml, read_yaml
from edgebench.errors import ConfigError

DEFAULT = "mmfakebench-1"
PLACES = ("caption", "entity", "knowledge", "analysis", "description", "first_sentence")
_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
NEEDED: dict[str, tuple[str, ...]] = {
    "standard": ("caption",),
    "entity": ("caption",),
    "analysis": ("caption", "knowledge"),
    "text_verdict": ("analysis",),
    "description": (),
    "image_verdict": ("description",),
    "consistency": ("caption",),
}
"""Text -> the places that it has to hold; without them the step would not see what it is about."""


@dataclass(frozen=True)
class Instructions:
    """One set of texts."""

    name: str
    """Name and version, such as 'mmfakebench-1'."""
    standard: str
    """The whole check in one prompt."""
    entity: str
    """The agent's six steps, in order: which entity to look up, ..."""
    analysis: str
    """... what the knowledge says of the caption, ..."""
    text_verdict: str
    """... whether the caption is refuted, ..."""
    description: str
    """... what in the picture goes against fact, ..."""
    image_verdict: str
    """... whether the picture is refuted, ..."""
    consistency: str
    """... whether both tell of the same."""
    no_knowledge: str
    """In place of an article where there is none."""
    sha256: str = ""
    """Of the file that they were read from."""

    def fill(self, step: str, values: dict[str, str]) -> str:
        """The prompt of a step. Each place is filled once: what is put in is never searched for places again."""
        return _PLACE.sub(lambda place: values.get(place[1], ""), getattr(self, step))

    @property
    def label(self) -> str:
        """Name and the beginning of the file's SHA-256, for a run's settings."""
        return f"{self.name}@{self.sha256[:12]}"


def load_instructions(name: str | None = None) -> Instructions:
    """A shipped set by its name, or the user's own by the path of a YAML file.

    Raises:
        UsageError: neither.
        ConfigError: the file is wrong, or a text lacks a place that its step needs.
    """
    path = find_yaml("instructions", name or DEFAULT, what="set of instructions")
    value = read_yaml(path)
    value["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    found = build(Instructions, value, where=str(path))
    for step, places in NEEDED.items():
        for place in places:
            if f"{{{place}}}" not in getattr(found, step):
                raise ConfigError(f"the text of {step!r} has no {{{place}}}", where=path)
    return found
