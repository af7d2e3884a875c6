"""Whether a model can fit a device, and what it cannot beat there, from shapes and peaks alone: an estimate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebench.cache import bytes_per_token
from edgebench.errors import ArtifactError, UsageError
from edgebench.export.precision import parts_of
from edgebench.manifest import read_artifact
from edgebench.metrics.limit import least_stages, peak_operations
from edgebench.recipes import load_recipe
from edgebench.shapes import works

if TYPE_CHECKING:
    from edgebench.manifest import Manifest
    from edgebench.profiles import DeviceProfile
    from edgebench.recipes import Recipe
    from edgebench.work import Work


@dataclass(frozen=True)
class Model:
    """What is known of a model before it runs."""

    name: str
    precision: str
    source: str
    """Where the numbers are from."""
    works: dict[str, Work]
    weight_bytes: int
    """Of all graphs; the lookup tables are in it."""
    cache_bytes_per_token: int | None
    tokens_per_tile: int
    speaks: bool
    """Whether it answers in words."""


def model_of(name: str, precision: str | None) -> Model:
    """An artifact by its folder, or a recipe by its name.

    Raises:
        UsageError: neither, or a recipe whose shape is not known; the advice says what to do.
        ArtifactError: the folder is no artifact, or one of before, without its operations.
    """
    if Path(name).is_dir():
        if precision is not None:
            raise UsageError("--precision is for recipes; an artifact has its own")
        return _of_artifact(read_artifact(Path(name), verify=False).manifest, Path(name))
    return _of_recipe(load_recipe(name), precision or "fp32")


def _of_artifact(manifest: Manifest, folder: Path) -> Model:
    found = {name: graph.work for name, graph in manifest.graphs.items() if graph.work is not None}
    if len(found) < len(manifest.graphs):
        raise ArtifactError("does not state its operations", where=folder, hint="export again with this version")
    images = manifest.text.images if manifest.text else None
    return Model(
        name=manifest.name,
        precision=manifest.precision,
        source="counted from the artifact's graphs",
        works=found,
        weight_bytes=sum(graph.bytes for graph in manifest.graphs.values()),
        cache_bytes_per_token=None if manifest.decoder is None else bytes_per_token(manifest.decoder),
        tokens_per_tile=images.per_tile if images else 0,
        speaks="classifier" not in manifest.graphs,
    )


def _of_recipe(recipe: Recipe, precision: str) -> Model:
    shape = recipe.shape
    if shape is None:
        raise UsageError(
            f"the shape of {recipe.name!r} is not in its recipe",
            hint="export it, and pass the artifact's folder" + ("" if recipe.prompt is None else ", or add 'shape'"),
        )
    kinds = asdict(parts_of(precision, recipe.precisions, recipe.name))
    found, on_disk = works(shape, kinds)
    return Model(
        name=recipe.name,
        precision=precision,
        source="the recipe's shape",
        works=found,
        weight_bytes=sum(on_disk.values()),
        cache_bytes_per_token=shape.cache_bytes_per_token(2 if kinds["decoder"] == "fp16" else 4),
        tokens_per_tile=shape.vision.tokens if shape.vision else 0,
        speaks=True,
    )


def estimate(
    model: Model, profile: DeviceProfile, *, tiles: int, text_tokens: int, output_tokens: int
) -> dict[str, Any]:
    """The least memory and the least times of one question.

    Args:
        model: what is asked.
        profile: the device.
        tiles: of pictures in the question; 0 for a model of text alone.
        text_tokens: of the prompt besides the pictures.
        output_tokens: of the answer.
    """
    sees = "vision" in model.works or "classifier" in model.works
    tiles = tiles if sees else 0
    prompt = tiles * model.tokens_per_tile + text_tokens if model.speaks else None
    held = None
    if model.cache_bytes_per_token is not None and prompt is not None:
        held = model.cache_bytes_per_token * (prompt + output_tokens)
    needed = model.weight_bytes + (held or 0)
    there = None
    if profile.memory_mib is not None and profile.memory_mib.value is not None:
        there = int(profile.memory_mib.value * 2**20)
    stages = least_stages(
        model.works,
        profile,
        tiles=tiles or None,
        prompt_tokens=prompt,
        output_tokens=output_tokens,
        cache_bytes_per_token=model.cache_bytes_per_token,
    )
    total = stages.pop("total").ns if "total" in stages else None
    return {
        "estimate": True,
        "model": model.name,
        "precision": model.precision,
        "model_source": model.source,
        "profile": asdict(profile),
        "question": {"tiles": tiles, "prompt_tokens": prompt, "output_tokens": output_tokens if model.speaks else None},
        "memory": {
            "weight_bytes": model.weight_bytes,
            "cache_bytes": held,
            "least_bytes": needed,
            "device_bytes": there,
            "fits": None if there is None else needed <= there,
        },
        "operations": {name: work.operations(1) for name, work in model.works.items()},
        "peak_operations_per_s": {name: peak_operations(profile, w.precision) for name, w in model.works.items()},
        "least_ms": {name: {"ms": t.ns / 1e6, "by": t.by} for name, t in stages.items()},
        "least_total_ms": None if total is None else total / 1e6,
        "budgets": _budgets(profile, needed, total),
    }


def _budgets(profile: DeviceProfile, needed: int, total_ns: float | None) -> list[dict[str, Any]]:
    """Budgets that cannot be kept whatever the runtime does; the others are open."""
    b = profile.budgets
    rows = []
    for name, budget, value in (
        ("latency p90, ms", b.latency_p90_ms, None if total_ns is None else total_ns / 1e6),
        ("memory, MiB", b.memory_mib, needed / 2**20),
    ):
        if budget is not None:
            rows.append(
                {
                    "budget": name,
                    "allowed": budget,
                    "least": value,
                    "can_be_kept": None if value is None else value <= budget,
                }
            )
    return rows
