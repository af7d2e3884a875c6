"""A registry is a readable table of strings, `{"ort": "edgebench.engines.ort:OrtEngine"}`, loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgebench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


def lookup(table: Mapping[str, Any], name: str, *, what: str) -> Any:
    """The entry of that name.

    Raises:
        UsageError: there is none; the nearest names are in the advice.
    """
    if name not in table:
        raise UsageError(f"unknown {what} {name!r}", hint=did_you_mean(name, table))
    return table[name]


def load(target: str) -> Any:
    """The object that 'package.module:name' stands for."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
