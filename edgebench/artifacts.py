"""Which artifact a run is of, and whether its engine takes one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgebench import __version__
from edgebench.cache import bytes_per_token
from edgebench.engines import DIALECTS, ENGINES
from edgebench.errors import UsageError
from edgebench.manifest import MANIFEST, is_artifact, read_artifact
from edgebench.recipes import load_recipe
from edgebench.records import ArtifactFact
from edgebench.registry import load

if TYPE_CHECKING:
    from edgebench.manifest import Artifact


def find_artifact(name: str | None, engine: str, say: Any) -> Artifact | None:
    """The artifact to run: a folder, a recipe's newest export here, or the newest export here.

    Args:
        name: a folder, a recipe's name, or None.
        engine: 'null' needs none, and one whose model is elsewhere takes none.
        say: called with one line when something was chosen for the user.

    Raises:
        ArtifactError: the folder is no finished artifact.
        UsageError: nothing fits; the advice says what to export.
    """
    if name is not None and (Path(name).exists() or "/" in name):
        return read_artifact(Path(name))
    if name is None and (engine == "null" or is_remote(engine)):
        return None
    exports = [(p.stat().st_mtime_ns, p.parent) for p in (*Path().glob(MANIFEST), *Path().glob(f"*/{MANIFEST}"))]
    folders = [folder for _, folder in sorted(exports, reverse=True)]
    if (wanted := DIALECTS.get(engine)) is not None:
        folders.sort(key=lambda folder: read_artifact(folder, verify=False).manifest.dialect != wanted)
    for folder in folders:
        artifact = read_artifact(folder, verify=False)
        if name is None or artifact.manifest.name == name:
            say(f"taking the newest export here: {folder}")
            return read_artifact(folder)
    if name is not None:
        recipe = load_recipe(name)
        raise UsageError(
            f"{recipe.name!r} has no export here",
            hint=f"run `edgebench export {recipe.name}` first, or pass the artifact's folder",
        )
    return _embedded("ort" if wanted is None else wanted, say)


def fact_of(artifact: Artifact) -> ArtifactFact:
    """What a run keeps of its artifact."""
    manifest = artifact.manifest
    return ArtifactFact(
        name=manifest.name,
        family=manifest.family,
        dialect=manifest.dialect,
        precision=manifest.precision,
        bytes=manifest.bytes,
        manifest_sha256=artifact.manifest_sha256,
        source_sha256=manifest.source.sha256,
        passport=None if manifest.preprocess is None else manifest.preprocess.passport(),
        parity=None if manifest.parity is None else asdict(manifest.parity),
        work={name: graph.work for name, graph in manifest.graphs.items() if graph.work is not None},
        cache_bytes_per_token=None if manifest.decoder is None else bytes_per_token(manifest.decoder),
    )


def is_remote(engine: str) -> bool:
    """Whether an engine's model is elsewhere. Those of other packages run in a process of their own all the same, and
    nothing of theirs is imported here.
    """
    return engine in ENGINES and bool(getattr(load(ENGINES[engine][0]), "remote", False))


def check_place(engine: str, endpoint: dict[str, str]) -> bool:
    """Whether an engine's model is elsewhere; an endpoint is given for such a one alone.

    Raises:
        UsageError: it is given for another.
    """
    remote = is_remote(engine)
    if endpoint and not remote:
        raise UsageError(
            f"the engine {engine!r} has its model here, so an endpoint says nothing to it",
            hint="pass --engine api, or leave --base-url and its like out",
        )
    return remote


def _embedded(dialect: Literal["ort", "portable"], say: Any) -> Artifact:
    """The embedded demo model, exported once into the user's cache."""
    from edgebench.export.run import export
    from edgebench.places import cache_folder

    folder = cache_folder() / f"edgebench-demo-fp32-{dialect}-{__version__}"
    say(f"no export here; taking the embedded demo model: {folder}")
    if is_artifact(folder):
        return read_artifact(folder)
    return export(
        load_recipe("edgebench-demo"), weights=None, precision="fp32", dialect=dialect, output=folder, say=say
    )
