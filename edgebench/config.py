"""Strict YAML and JSON -> frozen dataclasses.

PyYAML alone reads `1e-3` as text and `no` as False and lets the second of two equal keys win. Here a repeated
key, an unknown key, a missing key and a value of another type are errors that name the file and the key.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable
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
    try:
        return typing.cast("T", _dataclass(cls)(value))  # type: ignore[arg-type] # every class is hashable
    except _Wrong as wrong:
        place = ": ".join([where, *reversed(wrong.path)])
        raise error(wrong.what, where=place, hint=wrong.hint) from wrong.__cause__


class _Wrong(Exception):
    """A value that does not fit, and the keys that lead to it, the innermost first."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint
        self.path: list[str] = []


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


Converter = Callable[[Any], Any]
"""A value as its type asks for it, or `_Wrong`. Made once for each type: a run has tens of thousands of records."""


@cache
def _dataclass(cls: Any) -> Converter:
    hints = typing.get_type_hints(cls)
    fields = {f.name: _converter(hints[f.name]) for f in dataclasses.fields(cls) if f.init}
    as_it_is = {name: _unchanged(hints[name]) for name in fields}
    required = [
        f.name
        for f in dataclasses.fields(cls)
        if f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    known, needed, make = fields.keys(), frozenset(required), _maker(cls)

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"should be a mapping, is {_kind(value)}")
        given_names = value.keys()
        if not given_names <= known:
            key = next(key for key in value if key not in known)
            raise _Wrong(f"unknown key {key!r}", did_you_mean(str(key), fields))
        if not given_names >= needed:
            raise _Wrong(f"key {next(name for name in required if name not in value)!r} is missing")
        arguments, name = {}, ""
        try:
            for name, given in value.items():
                arguments[name] = given if type(given) in as_it_is[name] else fields[name](given)
        except _Wrong as wrong:
            wrong.path.append(name)
            raise
        try:
            return make(arguments)
        except ValueError as failure:
            raise _Wrong(str(failure)) from failure

    return convert


def _maker(cls: Any) -> Callable[[dict[str, Any]], Any]:
    """As `cls(**arguments)`, where nothing is checked in it in a quarter of the time: a frozen one's sets field by field."""
    if hasattr(cls, "__post_init__") or "__dict__" not in dir(cls) or any(not f.init for f in dataclasses.fields(cls)):
        return lambda arguments: cls(**arguments)
    plain = {f.name: None if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(cls)}
    made = [
        (f.name, f.default_factory) for f in dataclasses.fields(cls) if f.default_factory is not dataclasses.MISSING
    ]

    def make(arguments: dict[str, Any]) -> Any:
        new = object.__new__(cls)
        vars(new).update(plain, **arguments)
        for name, factory in made:
            if name not in arguments:
                vars(new)[name] = factory()
        return new

    return make


def _unchanged(kind: Any) -> frozenset[type]:
    """Values of exactly these types are of a kind as they are: they need no converter."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return frozenset().union(*map(_unchanged, typing.get_args(kind)))
    return frozenset({kind} if kind in {str, int, float, bool, type(None)} else ())


@cache
def _converter(kind: Any) -> Converter:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments)
    if origin is typing.Literal:
        return _literal(arguments)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)  # type: ignore[arg-type] # a class, which is hashable
    if origin is tuple:
        return _tuple(arguments)
    if origin is dict:
        return _mapping(*arguments)
    name = getattr(kind, "__name__", str(kind)) if origin is None else str(origin.__name__)

    def plain(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _Wrong(f"should be {name}, is {_kind(value)}")

    def real(value: Any) -> Any:
        if type(value) in {int, float}:
            return float(value)
        raise _Wrong(f"should be {name}, is {_kind(value)}")

    return real if kind is float else plain


def _union(arguments: tuple[Any, ...]) -> Converter:
    choices = [_converter(a) for a in arguments if a is not type(None)]
    optional = len(choices) < len(arguments)
    if optional and len(choices) == 1:
        return lambda value: None if value is None else choices[0](value)

    def convert(value: Any) -> Any:
        if optional and value is None:
            return None
        for choice in choices[:-1]:
            try:
                return choice(value)
            except _Wrong:
                continue
        return choices[-1](value)

    return convert


def _literal(arguments: tuple[Any, ...]) -> Converter:
    def convert(value: Any) -> Any:
        if value not in arguments:
            raise _Wrong(f"{value!r} is not one of {', '.join(map(repr, arguments))}")
        return value

    return convert


def _tuple(arguments: tuple[Any, ...]) -> Converter:
    many = arguments[-1] is Ellipsis
    kinds = [_converter(a) for a in arguments if a is not Ellipsis]

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _Wrong(f"should be tuple, is {_kind(value)}")
        if many:
            return tuple(map(kinds[0], value))
        if len(value) != len(kinds):
            raise _Wrong(f"should have {len(kinds)} values, has {len(value)}")
        return tuple(one(v) for one, v in zip(kinds, value, strict=True))

    return convert


def _mapping(key_kind: Any, value_kind: Any) -> Converter:
    key_of, value_of = _converter(key_kind), _converter(value_kind)
    keys, values = _unchanged(key_kind), _unchanged(value_kind)

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"should be dict, is {_kind(value)}")
        if keys.issuperset(map(type, value)) and values.issuperset(map(type, value.values())):
            return value
        found, key = {}, None
        try:
            for key, given in value.items():
                found[key_of(key)] = value_of(given)
        except _Wrong as wrong:
            wrong.path.append(str(key))
            raise
        return found

    return convert


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
