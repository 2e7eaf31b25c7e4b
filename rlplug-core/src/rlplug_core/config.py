"""Configurations: frozen dataclasses whose field comments are the help text and whose types are checked strictly.

An author writes:

    @dataclass(frozen=True)
    class MyConfig(Config):
        steps: Count = 128      # rollout length per environment row
        lr: Positive = 1e-3     # Adam step size
        search = {"lr": log(1e-5, 1e-2)}
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import io
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from rlplug_core.errors import BadConfig, did_you_mean
from rlplug_core.schedules import Written, written

#: Integers of at least 1, 2 and 0; numbers > 0, >= 0, in [0, 1] and in (0, 1].
Count = Annotated[int, msgspec.Meta(ge=1)]
Several = Annotated[int, msgspec.Meta(ge=2)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: Texts that are typed one by one, because each may hold commas.
Repeated = Annotated[tuple[str, ...], "repeated"]
#: A text that names something to import, `./file.py:name` or `module:name`; a run keeps a copy of the file.
Target = Annotated[str, "target"]


@dataclass(frozen=True)
class Range:
    """Where a tuner may search: `kind` is `log`, `uniform`, `integer` or `choice`."""

    kind: str
    values: tuple[Any, ...]


def log(low: float, high: float) -> Range:
    """Log-uniform between two positive numbers."""
    return Range("log", (low, high))


def uniform(low: float, high: float) -> Range:
    """Uniform between two numbers."""
    return Range("uniform", (low, high))


def integer(low: int, high: int) -> Range:
    """Uniform over the integers from `low` to `high`, both included."""
    return Range("integer", (low, high))


def choice(*values: Any) -> Range:
    """One of the values."""
    return Range("choice", values)


@dataclass(frozen=True)
class Config:
    """The base of all configurations; `search` maps option names to tuning ranges."""

    search: ClassVar[Mapping[str, Range]] = {}


@dataclass(frozen=True)
class Option:
    """One option of a schema, as a command line or a form needs it.

    `name` is dotted for nested dataclasses. `type` is one of `int`, `float`, `bool`, `str`,
    `choice`, `ints`, `floats`, `strs`, `repeated` (texts that are typed one by one), `target` (`./file.py:name`).
    """

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    open_minimum: bool = False
    optional: bool = False
    search: Range | None = None


C = TypeVar("C")


def schema(config: type[Any]) -> tuple[Option, ...]:
    """The options of a configuration dataclass, nested ones flattened to dotted names.

    Raises:
        BadConfig: a field has a type that no command line can express, or no default.
    """
    return tuple(_options(config, None, "", getattr(config, "search", {})))


def convert(config: type[C], values: Mapping[str, Any], where: str, follows: bool = False) -> C:
    """Build a configuration from dotted or nested `values`; missing ones take the dataclass's defaults.

    With `follows` a number may be written as a schedule: the configuration holds its start, and all it runs through is
    in range. A bound not to be touched may be reached behind the start, as by a step size that falls to 0.

    Raises:
        BadConfig: an unknown name, a wrong type or a value out of range; `where` (such as `a2c`) says whose option.
    """
    options = {option.name: option for option in schema(config)}
    given = _flat(values)
    for name, value in given.items():
        if name not in options:
            raise BadConfig(
                f"{where} has no option '{name}'{did_you_mean(name, options)} (rlplug info {where} lists them)"
            )
        if options[name].optional and value == "none":  # as a TOML file says it, which has no null
            given[name] = None
    found = schedules(config, values, where)
    if found and not follows:
        raise BadConfig(f"{where}: option '{min(found)}' cannot follow a schedule; give it a number")
    start = {**flatten(config()), **given, **{name: one.values[0] for name, one in found.items()}}
    try:
        for name, one in found.items():
            for value in tested(options[name], one):
                msgspec.convert(_nest({**start, name: value}), config, strict=True)
        return msgspec.convert(_nest(start), config, strict=True)
    except msgspec.ValidationError as error:
        raise BadConfig(_sentence(str(error), where)) from error


def schedules(config: type[Any], values: Mapping[str, Any], where: str) -> dict[str, Written]:
    """The schedules among `values`, by dotted name.

    Raises:
        BadConfig: one is wrongly written, or stands for an option that is no number with a fraction.
    """
    kinds, found = {option.name: option.type for option in schema(config)}, {}
    for name, value in _flat(values).items():
        if kinds.get(name, "str") in ("str", "strs", "repeated", "choice", "target"):
            continue
        try:
            one = written(value)
        except BadConfig as error:
            raise BadConfig(f"{where}: option '{name}': {error}") from error
        if one is not None and kinds[name] != "float":
            raise BadConfig(f"{where}: option '{name}' cannot follow a schedule: only numbers with a fraction can")
        if one is not None:
            found[name] = one
    return found


def tested(option: Option, one: Written) -> tuple[float, ...]:
    """The values of a schedule that must be in range: all but those at an open bound behind the start."""
    start, *rest = one.values
    return (start, *(value for value in rest if not (option.open_minimum and value == option.minimum)))


def parse(option: Option, text: str) -> Any:
    """A value from the command line or a `--set`: the text in the option's type; a wrong one stays text."""
    if option.optional and text.lower() in ("none", "null"):
        return None
    if option.type == "repeated":
        return [] if text.lower() == "none" else [text]
    scalar: dict[str, Any] = {"int": int, "ints": int, "float": float, "floats": float}
    kind = scalar.get(option.type, str)
    try:
        if option.type == "bool":
            return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[text.lower()]
        if option.type in ("ints", "floats", "strs"):
            return [kind(part) for part in text.strip("[]()").replace(" ", "").split(",") if part]
        return kind(text)
    except (ValueError, KeyError):
        return text


def flatten(config: Any) -> dict[str, Any]:
    """Dotted names to plain values (tuples become lists), the inverse of `convert`."""
    return dict(_flat(_plain(config)))


def _plain(config: Any) -> dict[str, Any]:
    """All fields, by hand: msgspec leaves out those of a converted dataclass that have their defaults."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain(value)
    return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in _flat(values).items():
        *parents, leaf = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return nested


def _sentence(message: str, where: str) -> str:
    reason, _, path = message.partition(" - at `$")
    name = path.rstrip("`").strip(".")
    return f"{where}: option '{name}': {reason[0].lower()}{reason[1:]} (rlplug info {where} shows its type and default)"


def _options(config: type[Any], held: Any, prefix: str, search: Mapping[str, Range]) -> Iterator[Option]:
    """The options of a dataclass; their defaults are those of `held`, the one that another holds, if it is nested."""
    hints = typing.get_type_hints(config, include_extras=True)
    helps = _helps(config)  # type: ignore[arg-type]  # a class is hashable, whatever it is
    for field in dataclasses.fields(config):
        name = prefix + field.name
        default = _default(config, field) if held is None else getattr(held, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _options(typing.cast("type[Any]", hints[field.name]), default, f"{name}.", search)
            continue
        help = str(field.metadata.get("help", helps.get(field.name, "")))
        yield _option(name, hints[field.name], _plain_value(default), help, search.get(name))


def _default(config: type[Any], field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise BadConfig(f"{config.__name__}.{field.name} has no default; every option needs one")


def _option(name: str, hint: Any, default: Any, help: str, search: Range | None) -> Option:
    hint, optional = _strip_optional(hint)
    minimum = maximum = None
    is_open, notes = False, []
    if typing.get_origin(hint) is Annotated:
        hint, *notes = typing.get_args(hint)
        for meta in (note for note in notes if isinstance(note, msgspec.Meta)):
            minimum, maximum = (meta.ge if meta.ge is not None else meta.gt), meta.le
            is_open = meta.gt is not None
    marked = [note for note in notes if isinstance(note, str)]
    kind, choices = (marked[0], ()) if marked else _kind(name, hint)
    return Option(name, kind, default, help, choices, minimum, maximum, is_open, optional, search)


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _kind(name: str, hint: Any) -> tuple[str, tuple[str, ...]]:
    if typing.get_origin(hint) is Literal:
        return "choice", tuple(str(value) for value in typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "choice", tuple(str(member.value) for member in hint)
    if hint in (int, float, bool, str):
        return hint.__name__, ()
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        item = typing.get_args(item)[0] if typing.get_origin(item) is Annotated else item
        if item in (int, float, str):
            return f"{item.__name__}s", ()
    raise BadConfig(f"option '{name}' has type {hint}; use int, float, bool, str, Literal, or a tuple of one of these")


@cache
def _helps(config: type[Any]) -> dict[str, str]:
    """Field name to trailing comment, from the sources of the class and its bases; no source, no help."""
    helps: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if dataclasses.is_dataclass(base):
            helps.update(_comments(base))
    return helps


def _comments(config: type[Any]) -> dict[str, str]:
    try:
        source = io.StringIO(inspect.cleandoc(inspect.getsource(config)))
        tokens = list(tokenize.generate_tokens(source.readline))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return {}
    found: dict[str, str] = {}
    for token in tokens:
        if token.type == tokenize.COMMENT and token.line.strip() != token.string.strip():
            name, colon, _ = token.line.strip().partition(":")
            if colon and name.isidentifier():
                found[name] = token.string.lstrip("# ").strip()
    return found
