"""What an engine can do here, found out in a process of its own: native libraries may end it while they are imported."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from edgebench.config import build
from edgebench.engines.base import Availability
from edgebench.errors import EdgebenchError, EngineError, one_line
from edgebench.registry import load

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NEEDS: dict[str, tuple[str, dict[str, str]]] = {
    "torch": ("export", {"torch": "torch", "transformers": "transformers"}),
    "openvino": ("openvino", {"openvino": "openvino"}),
    "genai": ("genai", {"onnxruntime_genai": "onnxruntime-genai"}),
    "api": ("api", {"httpx2": "httpx2"}),
}
"""Engine without a hook of its own -> (extra, module -> its distribution)."""


def probe(connection: Connection, name: str, target: str) -> None:
    """Send an `Availability` as plain data, whatever happens short of a crash.

    Args:
        connection: to the process that asks.
        name: the engine's.
        target: 'package.module:Class'.
    """
    try:
        found = _ask(name, target)
    except EdgebenchError as error:
        found = Availability(runs=False, reason=str(error))
    except Exception as error:  # engines of others raise what they like
        found = Availability(runs=False, reason=one_line(error))
    connection.send(asdict(found))


def _ask(name: str, target: str) -> Availability:
    extra, modules = NEEDS.get(name, (None, {}))
    versions = {}
    for module, distribution in modules.items():
        try:
            import_module(module)
            versions[distribution] = metadata.version(distribution)
        except ImportError as error:
            install = f"pip install 'edgebench[{extra}]'"
            return Availability(runs=False, reason=one_line(error), install=install, versions=versions)
    hook = getattr(load(target), "available", None)
    if hook is None:
        return Availability(runs=True, versions=versions)
    said = hook()
    if not isinstance(said, Availability):
        raise EngineError(f"available() of {target} gave {type(said).__name__}, not an Availability")
    return build(Availability, asdict(said), where=f"available() of {target}", error=EngineError)
