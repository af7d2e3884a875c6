"""Engines of other packages, found by their entry points.

A package offers an engine by one line of its pyproject.toml, and nothing of it is imported before it is used:

    [project.entry-points."edgebench.engines"]
    mine = "my_package.engine:MyEngine"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import metadata

from edgebench.engines import ENGINES
from edgebench.errors import UsageError, one_line
from edgebench.registry import lookup

GROUP = "edgebench.engines"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""An engine's name becomes a part of the name of a run's folder."""
TARGET = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True)
class Offered:
    """What is installed beside edgebench."""

    engines: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> (class, summary), as in the built-in table."""
    refused: dict[str, str] = field(default_factory=dict)
    """Name -> why it is not taken. The name of a built-in engine goes on to mean that one."""


def offered() -> Offered:
    """The engines of all installed packages. Metadata that cannot be read are a refused row, and hinder no other."""
    found: dict[str, dict[str, str]] = {}
    refused: dict[str, str] = {}
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            entries = [entry for entry in distribution.entry_points if entry.group == GROUP]
            if not entries or (own := str(distribution.metadata["Name"]).lower()) in seen:
                continue
            seen.add(own)
            package = f"{own} {distribution.version}"
        except Exception as error:  # what a damaged folder raises depends on how it is damaged
            if GROUP in _raw(distribution):
                refused[str(getattr(distribution, "_path", "a package"))] = f"cannot be read: {one_line(error)}"
            continue
        for entry in entries:
            target = entry.value.partition("[")[0].strip()
            if not NAME.fullmatch(entry.name) or not TARGET.fullmatch(target):
                refused[entry.name] = f"{package}: {entry.name} = {entry.value} is not NAME = PACKAGE.MODULE:CLASS"
            else:
                found.setdefault(entry.name, {}).setdefault(package, target)
    engines: dict[str, tuple[str, str]] = {}
    for name, packages in sorted(found.items()):
        if name in ENGINES:
            refused[name] = f"{', '.join(packages)}: the name {name!r} is edgebench's own"
        elif len(packages) > 1:
            refused[name] = f"{' and '.join(packages)} both offer an engine {name!r}: uninstall one"
        else:
            ((package, target),) = packages.items()
            engines[name] = (target, f"of the package {package}")
    return Offered(engines, refused)


def engine_class(name: str) -> str:
    """'package.module:Class' of an engine, built in or of another package.

    Raises:
        UsageError: there is none of that name, or it is refused.
    """
    if name in ENGINES:
        return ENGINES[name][0]
    others = offered()
    if name in others.refused:
        raise UsageError(f"the engine {name!r} is refused: {others.refused[name]}")
    target: str = lookup(ENGINES | others.engines, name, what="engine")[0]
    return target


def _raw(distribution: metadata.Distribution) -> str:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except (OSError, ValueError):
        return ""
