"""Recipes: what to export and how, one model each, in `recipes/*.yaml`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from edgebench.config import build, find_yaml, read_yaml
from edgebench.errors import ConfigError
from edgebench.manifest import Family, Preprocess
from edgebench.shapes import Shape

Precision = Literal["fp32", "fp16", "bf16", "int8", "int4", "w8a8"]


LANGUAGE_MODELS = frozenset(["llava", "llava_next", "language"])
"""Families that answer in words."""


@dataclass(frozen=True)
class Bound:
    """What parity at export has to keep. None: no bound is stated, the figure is only reported."""

    max_abs: float | None = None
    relative_rms: float | None = None
    top1: float | None = None
    """At least."""
    kl: float | None = None
    """Mean Kullback-Leibler divergence from the checkpoint's next-token distribution, in nats; at most."""
    perplexity: float | None = None
    """Perplexity over the checkpoint's own; at most."""


@dataclass(frozen=True)
class Prompt:
    """How a language model is asked."""

    style: str
    """A name of `edgebench.prompts.styles`."""
    chat_template: str | None = None
    """Jinja2, in place of the checkpoint's own."""
    max_new_tokens: int = 512


@dataclass(frozen=True)
class Recipe:
    """One model."""

    name: str
    summary: str
    family: Family
    source: str
    """Where the weights are published, for people: a hub id or an address."""
    licence: str
    network: str | None = None
    """classifier: a name of `edgebench.checkpoints.networks`."""
    encoder: str | None = None
    """encoder: a name of `edgebench.checkpoints.encoders.ENCODERS`."""
    feature: Literal["image_embeds", "pooler_output"] | None = None
    """encoder: what the probe stands on; None: what that encoder is usually probed on."""
    unit_length: bool = False
    """encoder: whether the probe takes features of length 1."""
    hub_id: str | None = None
    """llava, encoder: what `--weights` takes from a model hub when none is given."""
    embedded: str | None = None
    """A checkpoint folder inside the package, relative to `edgebench/`."""
    weights_file: str | None = None
    """classifier: the published name of the weights file; encoder: of the probe."""
    beside: tuple[str, ...] = ()
    """classifier: published names of further weights that the network takes, in the same folder."""
    forged: tuple[str, ...] = ()
    """text_classifier: the labels that mean forged, where their words do not say it."""
    preprocess: Preprocess | None = None
    """None: taken from the checkpoint's preprocessor_config.json."""
    prompt: Prompt | None = None
    precisions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Precision -> part ('vision', 'embed', 'decoder', 'lm_head') -> kind, in place of the rule of
    `edgebench.export.precision`."""
    parity: dict[str, Bound] = field(default_factory=dict)
    """Bounds by precision; 'w8a8' is int8 with calibrated activations."""
    parameters_b: float | None = None
    shape: Shape | None = None
    """Language models: what `edgebench estimate` needs before there is an artifact."""

    def bound(self, precision: str) -> Bound:
        """The bound of a precision; an empty one where the recipe states none."""
        return self.parity.get(precision, Bound())


def load_recipe(name: str) -> Recipe:
    """A recipe by its name, or by the path of a YAML file.

    Raises:
        UsageError: no recipe of that name.
        ConfigError: the file is wrong.
    """
    path = find_yaml("recipes", name, what="recipe")
    recipe = build(Recipe, read_yaml(path), where=str(path))
    if recipe.name != path.stem:
        raise ConfigError(f"is called {recipe.name!r} inside and {path.stem!r} outside", where=path)
    if recipe.family == "classifier" and (recipe.network is None or recipe.preprocess is None):
        raise ConfigError("a classifier needs 'network' and 'preprocess'", where=path)
    if recipe.family == "encoder" and recipe.encoder is None:
        raise ConfigError("an encoder needs 'encoder'", where=path)
    if recipe.family in LANGUAGE_MODELS and recipe.prompt is None:
        raise ConfigError("a language model needs 'prompt'", where=path)
    return recipe
