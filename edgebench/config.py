"""Strict YAML and JSON -> frozen dataclasses.

PyYAML alone reads `1e-3` as text and `no` as False and lets the second of two equal keys win. Here a repeated
key, an unknown key, a missing key and a value of another type are errors that name the file and the key.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from edgebench.errors import ConfigError, EdgebenchError, UsageError, did_you_mean, one_line

T = TypeVar("T")
_FLOAT = re.compile(
    r"^[-+]?(\d[\d_]*)(\.\d*)?([eE][-+]?\d+)?$|^[-+]?\.\d+([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
)


@lru_cache(maxsize=1)
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader with YAML 1.2's booleans and floats, and no repeated keys."""

    Loader.yaml_implicit_resolvers = {
        first: [
            (tag, regexp) for tag, regexp in rows if tag not in {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"}
        ]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))

    def mapping(loader: Any, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = loader.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} appears twice", key_node.start_mark)
            keys.add(key)
        return dict(yaml.SafeLoader.construct_mapping(loader, node, deep))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


def read_yaml(path: Path) -> dict[str, Any]:
    """One YAML mapping from a file, strictly.

    Raises:
        ConfigError: the file cannot be read, is no mapping, or repeats a key.
    """
    import yaml

    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_loader())  # noqa: S506 - a SafeLoader subclass
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", where=path) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(one_line(error), where=path) from error
    if not isinstance(value, dict):
        raise ConfigError("is not a mapping of keys to values", where=path)
    return value


def build(cls: type[T], value: Any, *, where: str, error: type[EdgebenchError] = ConfigError) -> T:
    """A frozen dataclass from plain data, each key and type checked, nested dataclasses included.

    Args:
        cls: the dataclass.
        value: a mapping, as YAML or JSON gives it.
        where: the place named in errors.
        error: the error to raise.
    """
    if not isinstance(value, dict):
        raise error(f"should be a mapping, is {_kind(value)}", where=where)
    hints = _hints(cls)  # type: ignore[arg-type] # every class is hashable
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type] # cls is a dataclass
    for key in value:
        if key not in fields:
            raise error(f"unknown key {key!r}", where=where, hint=did_you_mean(str(key), fields))
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            arguments[name] = _convert(value[name], hints[name], f"{where}: {name}", error)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise error(f"key {name!r} is missing", where=where)
    try:
        return cls(**arguments)
    except ValueError as failure:
        raise error(str(failure), where=where) from failure


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def _convert(value: Any, kind: Any, where: str, error: type[EdgebenchError]) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in {typing.Union, types.UnionType}:
        if value is None and type(None) in arguments:
            return None
        choices = [a for a in arguments if a is not type(None)]
        for choice in choices[:-1]:
            try:
                return _convert(value, choice, where, error)
            except EdgebenchError:
                continue
        return _convert(value, choices[-1], where, error)
    if origin is typing.Literal:
        if value not in arguments:
            raise error(f"{value!r} is not one of {', '.join(map(repr, arguments))}", where=where)
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        if arguments[-1] is Ellipsis:
            return tuple(_convert(v, arguments[0], where, error) for v in value)
        if len(value) != len(arguments):
            raise error(f"should have {len(arguments)} values, has {len(value)}", where=where)
        return tuple(_convert(v, a, where, error) for v, a in zip(value, arguments, strict=True))
    if origin is dict and isinstance(value, dict):
        key_kind, value_kind = arguments
        return {
            _convert(k, key_kind, where, error): _convert(v, value_kind, f"{where}: {k}", error)
            for k, v in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where=where, error=error)  # type: ignore[arg-type] # a class, not an instance
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind in {int, str, bool, dict, list} and type(value) is kind:
        return value
    expected = getattr(kind, "__name__", str(kind)) if origin is None else str(origin.__name__)
    raise error(f"should be {expected}, is {_kind(value)}", where=where)


def find_yaml(folder: str, name: str, *, what: str) -> Path:
    """A shipped YAML file by its name, or the user's own by its path.

    Args:
        folder: a folder of shipped data, such as 'recipes'.
        name: a shipped name or a path that ends in .yaml.
        what: the thing, for the error.

    Raises:
        UsageError: neither; the nearest names are in the advice.
    """
    shipped = shipped_yaml(folder)
    path = shipped.get(name) or Path(name)
    if name not in shipped and (path.suffix not in {".yaml", ".yml"} or not path.is_file()):
        raise UsageError(f"no {what} is called {name!r}", hint=did_you_mean(name, shipped))
    return path


@cache
def shipped_yaml(folder: str) -> dict[str, Path]:
    """Every shipped YAML file of a folder, by name."""
    return {path.stem: path for path in sorted(data_folder(folder).glob("*.yaml"))}


def data_folder(name: str) -> Path:
    """A folder of shipped data: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "data" / name
    return inside if inside.is_dir() else package.parent / name
