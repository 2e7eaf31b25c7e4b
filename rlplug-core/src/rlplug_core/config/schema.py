"""The schema of a configuration: its options with types, defaults, ranges and help, as a command line needs them."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import io
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal

import msgspec

from rlplug_core.config.options import Follows, Range
from rlplug_core.errors import BadConfig

#: The options of each class, cached because the start of a run asks for them nine times.
_SCHEMAS: dict[type[object], tuple[Option, ...]] = {}


@dataclass(frozen=True)
class Option:
    """One option of a schema, as a command line or a form needs it.

    `name` is dotted for nested dataclasses. `type` is one of `int`, `float`, `bool`, `str`, `choice`, `choices` (one
    choice or a list of them), `ints`, `floats`, `strs`, `repeated` (strings, each typed with its own `--option`),
    `target` (`./file.py:name`). With `open_minimum` the minimum itself is not allowed. `optional` options may be None,
    and `scheduled` ones may follow a schedule.
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
    scheduled: bool = False


def schema(config: type[object]) -> tuple[Option, ...]:
    """Return the options of a configuration dataclass, nested ones flattened to dotted names.

    Raises:
        BadConfig: a field has a type that no command line can express, or no default, or no type; or a class lacks
            `@dataclass`.
    """
    if config not in _SCHEMAS:
        _check_fields(config)
        _SCHEMAS[config] = tuple(_options(config, None, "", getattr(config, "search", {})))
    return _SCHEMAS[config]


def _check_fields(config: type[object]) -> None:
    """Refuse fields without a type, which would silently not be options."""
    for base in config.__mro__[:-1]:
        attributes = vars(base)
        typed = vars(base).get("__annotations__", {})
        for name, value in attributes.items():
            if (
                not name.startswith("_")
                and name not in (*typed, "search", "formerly")
                and not _is_method(value)
            ):
                raise BadConfig(
                    f"{base.__name__}.{name} has no type, so it is not an option; write one after its name"
                )
        if typed and "__dataclass_fields__" not in attributes:
            raise BadConfig(
                f"{base.__name__} is not a dataclass; write @dataclass(frozen=True) above it"
            )


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(
        value, property | classmethod | staticmethod | cached_property
    )


def flatten(config: object) -> dict[str, Any]:
    """Return plain values by dotted name (tuples become lists); the inverse of `convert`."""
    return flat(_plain(config))


def _plain(value: object) -> Any:
    """Return a value in Python's own types; msgspec would leave out fields of a dataclass that have their defaults."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted names."""
    table: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            table.update(flat(value, f"{prefix}{name}."))
        else:
            table[prefix + name] = value
    return table


def _options(
    config: type[Any],
    nested: object,
    prefix: str,
    search: Mapping[str, Range],
) -> Iterator[Option]:
    """Yield the options of a dataclass; `nested` is the default value of a nested one, else None."""
    hints = typing.get_type_hints(config, include_extras=True)
    helps = _help_texts(config)  # type: ignore[arg-type]  # every class is hashable
    for field in dataclasses.fields(config):
        name = prefix + field.name
        default = _default(config, field) if nested is None else getattr(nested, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _options(
                typing.cast("type[Any]", hints[field.name]), default, f"{name}.", search
            )
            continue
        help = str(field.metadata.get("help", helps.get(field.name, "")))
        yield _option(name, hints[field.name], _plain(default), help, search.get(name))


def _default(config: type[object], field: dataclasses.Field[object]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise BadConfig(f"{config.__name__}.{field.name} has no default; every option needs one")


def _option(
    name: str,
    hint: object,
    default: object,
    help: str,
    search: Range | None,
) -> Option:
    hint, optional = _strip_optional(hint)
    metadata = []
    if typing.get_origin(hint) is Annotated:
        hint, *metadata = typing.get_args(hint)
    limits = next((item for item in metadata if isinstance(item, msgspec.Meta)), msgspec.Meta())
    kinds = [item for item in metadata if isinstance(item, str)]
    kind, choices = (kinds[0], ()) if kinds else _kind(name, hint)
    return Option(
        name,
        kind,
        default,
        help,
        choices=choices,
        minimum=limits.gt if limits.ge is None else limits.ge,
        maximum=limits.le,
        open_minimum=limits.gt is not None,
        optional=optional,
        search=search,
        scheduled=Follows in metadata,
    )


def _strip_optional(hint: object) -> tuple[object, bool]:
    """Return a type without None, and whether it had None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = typing.get_args(hint)
        types_left = tuple(member for member in members if member is not type(None))
        if len(types_left) < len(members):
            return typing.Union[types_left], True  # noqa: UP007  # `|` cannot take a tuple of types
    return hint, False


def _kind(name: str, hint: object) -> tuple[str, tuple[str, ...]]:
    """Return the type of an option, as in `Option.type`, and its choices."""
    if typing.get_origin(hint) is Literal:
        return "choice", tuple(str(value) for value in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        word, *lists = typing.get_args(hint)
        items = [typing.get_args(part) for part in lists if typing.get_origin(part) is tuple]
        if typing.get_origin(word) is Literal and items == [(word, ...)]:
            return "choices", tuple(str(value) for value in typing.get_args(word))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "choice", tuple(str(member.value) for member in hint)
    if hint in (int, float, bool, str):
        return hint.__name__, ()
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        item = typing.get_args(item)[0] if typing.get_origin(item) is Annotated else item
        if item in (int, float, str):
            return f"{item.__name__}s", ()
    raise BadConfig(
        f"option '{name}' has type {hint}; use int, float, bool, str, Literal, or tuple[int, ...] and its like"
    )


@cache
def _help_texts(config: type[object]) -> dict[str, str]:
    """Return the comment of each field, from the sources of the class and its bases; {} without sources."""
    helps: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if dataclasses.is_dataclass(base):
            helps.update(_comments(base))
    return helps


def _comments(config: type[object]) -> dict[str, str]:
    """Return each field's comment: the one on the field's lines, else the comment lines directly above it."""
    try:
        source = inspect.cleandoc(inspect.getsource(config))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        (tree,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError, tokenize.TokenError):
        return {}
    comments = {}
    for token in tokens:
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ").strip()
    fields = [node for node in getattr(tree, "body", []) if isinstance(node, ast.AnnAssign)]
    trailing = {line for field in fields for line in _lines(field)}
    helps: dict[str, str] = {}
    for field in fields:
        inside = [comments[line] for line in _lines(field) if line in comments]
        above: list[str] = []
        line = field.lineno - 1
        while line in comments and line not in trailing:
            above.insert(0, comments[line])
            line -= 1
        if isinstance(field.target, ast.Name) and (inside or above):
            helps[field.target.id] = inside[0] if inside else " ".join(above)
    return helps


def _lines(node: ast.AnnAssign) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
