"""Configurations: help from comments, strict types, and errors in one sentence."""

from __future__ import annotations

import dataclasses
import enum
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.config.options import (
    Config,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Range,
    choice,
    integer,
    log,
    uniform,
    watch,
)
from rlplug_core.config.parse import convert, parse
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import Option, flatten, schema
from rlplug_core.errors import BadConfig
from rlplug_core.nets.net import Net
from tests.tables import for_each


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    """Nested."""

    depth: Count = 2  # how deep
    shape: tuple[int, ...] = (1, 2)  # what shape


@dataclass(frozen=True)
class Base(Config):
    """Inherited."""

    n_steps: Count = 128  # rollout length per environment row
    gamma: Fraction = 0.99  # discount; "#" is not special


@dataclass(frozen=True)
class Example(Base):
    """One option of each type."""

    learning_rate: Positive = 1e-3  # step size
    n_steps: Natural = 5  # changed below
    bonus: NonNegative = 0.0  # at least 0
    limit: Positive | None = None  # none for no limit
    name: str = "a # b"  # a text with a hash
    flag: bool = False
    mode: Literal["fast", "slow"] = "fast"  # how
    color: Color = Color.RED  # which
    sizes: tuple[Count, ...] = (64, 64)  # of layers
    inner: Inner = Inner(depth=7)
    other: Net = field(default_factory=lambda: Net(hidden=(5,), activation="relu"))
    # a comment on a line of its own is not help
    note: str = field(default="n", metadata={"help": "help by hand"})  # not this

    search: ClassVar[dict[str, Range]] = {"learning_rate": log(1e-5, 1e-2), "inner.depth": integer(1, 4)}


OPTIONS = {option.name: option for option in schema(Example)}


def test_schema_describes_every_option() -> None:
    assert list(OPTIONS) == [
        "n_steps", "gamma", "learning_rate", "bonus", "limit", "name", "flag", "mode", "color", "sizes",
        "inner.depth", "inner.shape", *(f"other.{each.name}" for each in dataclasses.fields(Net)), "note",
    ]  # fmt: skip
    assert OPTIONS["learning_rate"] == Option(
        "learning_rate", "float", 1e-3, "step size", minimum=0, open_minimum=True, search=log(1e-5, 1e-2)
    )
    assert OPTIONS["gamma"] == Option("gamma", "float", 0.99, 'discount; "#" is not special', minimum=0, maximum=1)
    assert OPTIONS["limit"] == Option("limit", "float", None, "none for no limit", (), 0, None, True, True)
    assert OPTIONS["mode"] == Option("mode", "choice", "fast", "how", ("fast", "slow"))
    assert OPTIONS["flag"] == Option("flag", "bool", False, "")
    assert (OPTIONS["sizes"].type, OPTIONS["sizes"].default) == ("ints", [64, 64])
    assert (OPTIONS["color"].default, OPTIONS["color"].choices) == ("red", ("red", "blue"))
    assert OPTIONS["inner.depth"].search == integer(1, 4)


def test_help_is_the_comment_after_a_field() -> None:
    assert OPTIONS["n_steps"].help == "changed below"
    assert {option.name: option.help for option in schema(Base)}["n_steps"] == "rollout length per environment row"
    assert OPTIONS["name"].help == "a text with a hash"
    assert OPTIONS["inner.depth"].help == "how deep"
    assert OPTIONS["note"].help == "help by hand"


def test_outer_config_sets_defaults_of_nested_ones() -> None:
    assert OPTIONS["inner.depth"].default == 7
    assert OPTIONS["other.hidden"].default == [5]
    assert OPTIONS["other.activation"].default == "relu"


def test_convert_changes_single_values_of_nested_configs() -> None:
    config = convert(Example, {"inner.shape": [3], "other.hidden": [9, 9]}, "example")
    assert config.inner == Inner(depth=7, shape=(3,))
    assert config.other == Net(hidden=(9, 9), activation="relu")
    assert convert(Example, {"inner": {"depth": 1}}, "example").inner == Inner(depth=1)


def test_class_without_source_has_no_help() -> None:
    space: dict[str, Any] = {}
    exec(
        "from dataclasses import dataclass\nfrom rlplug_core.config.options import Config\n"
        "@dataclass(frozen=True)\nclass Typed(Config):\n    x: int = 1  # unseen\n",
        space,
    )
    assert schema(space["Typed"])[0].help == ""


def test_local_class_with_unindented_docstring_has_a_schema() -> None:
    @dataclass(frozen=True)
    class Local(Config):
        """A docstring
        that does not mind its margin."""

        x: int = 1  # seen

    assert schema(Local)[0].help in ("seen", "")
    assert schema(Local)[0].default == 1


def test_invalid_config_classes_raise() -> None:
    @dataclass(frozen=True)
    class Wrong(Config):
        table: dict[str, int] = field(default_factory=dict)

    @dataclass(frozen=True)
    class Bare(Config):
        x: int

    class Undecorated(Example):
        more: int = 1

    class Untyped(Example):
        search: ClassVar[dict[str, Range]] = {}
        more = 0.5

        def late(self) -> int:
            return 1

    with pytest.raises(BadConfig, match="'table' has type"):
        schema(Wrong)
    with pytest.raises(BadConfig, match=r"Undecorated is not a dataclass; write @dataclass\(frozen=True\) above it"):
        schema(Undecorated)
    with pytest.raises(BadConfig, match=r"Untyped\.more has no type, so it is not an option"):
        schema(Untyped)
    with pytest.raises(BadConfig, match=r"Bare\.x has no default"):
        schema(Bare)


# From values to a configuration.

GOOD = {
    "n_steps": 0, "learning_rate": 1, "gamma": 1.0, "limit": None, "name": "x", "flag": True, "mode": "slow",
    "color": "blue", "sizes": [1, 2, 3], "inner.depth": 3,
}  # fmt: skip


def test_convert_inverts_flatten() -> None:
    config = convert(Example, GOOD, "example")
    assert (config.n_steps, config.learning_rate, config.sizes, config.color, config.inner.depth) == (
        0, 1.0, (1, 2, 3), Color.BLUE, 3,
    )  # fmt: skip
    assert isinstance(config.learning_rate, float)
    flat = flatten(config)
    assert flat | GOOD == flat
    assert list(flat) == list(OPTIONS)
    assert convert(Example, flat, "example") == config
    assert convert(Example, {}, "example") == Example()


@pytest.mark.parametrize(("name", "value", "found"), [
    ("sizes", np.array([64, 32]), (64, 32)), ("sizes", np.array([64.0]), (64,)),
    ("inner.shape", torch.tensor([3]), (3,)), ("n_steps", np.int64(7), 7), ("n_steps", np.array(7), 7),
    ("gamma", np.float32(0.5), 0.5), ("flag", np.True_, True),
])  # fmt: skip
def test_convert_accepts_arrays_and_their_numbers(name: str, value: object, found: object) -> None:
    config = convert(Example, {name: value}, "example")
    taken = config.inner.shape if name == "inner.shape" else getattr(config, name)
    assert taken == found
    assert json.loads(json.dumps(flatten(config))) == flatten(config)


@for_each("values, sentence", [
    ({"n_steps": np.array([7])}, "option 'n_steps': expected `int`, got `array`"),
    ({"sizes": np.zeros((2, 2))}, r"option 'sizes.*': expected `int`, got `array`"),
    ({"learning_rat": 1.0}, "example has no option 'learning_rat'; did you mean 'learning_rate'"),
    ({"inner.dept": 1}, "example has no option 'inner.dept'; did you mean 'inner.depth'"),
    ({"inner": 3}, "example has no option 'inner'"),
    ({"zzz": 1}, r"example has no option 'zzz' \("),
    ({"n_steps": "many"}, "option 'n_steps': expected `int`, got `str`"),
    ({"n_steps": True}, "option 'n_steps': expected `int`"),
    ({"n_steps": 1.5}, "option 'n_steps': expected `int`"),
    ({"n_steps": -1}, "option 'n_steps': expected `int` >= 0"),
    ({"learning_rate": 0.0}, "option 'learning_rate': expected `float` > 0"),
    ({"learning_rate": "1e-3"}, "option 'learning_rate': expected `float`, got `str`"),
    ({"learning_rate": float("nan")}, "option 'learning_rate'"),
    ({"gamma": 1.01}, "option 'gamma': expected `float` <= 1"),
    ({"flag": 1}, "option 'flag': expected `bool`"),
    ({"mode": "medium"}, "option 'mode': invalid enum value 'medium'"),
    ({"name": None}, "option 'name': expected `str`, got `null`"),
    ({"sizes": [0]}, r"option 'sizes.*': expected `int` >= 1"),
    ({"sizes": 64}, "option 'sizes': expected `array`, got `int`"),
    ({"inner.depth": 0}, r"option 'inner\.depth': expected `int` >= 1"),
])  # fmt: skip
def test_invalid_values_raise_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence) as caught:
        convert(Example, values, "example")
    assert str(caught.value).startswith("example")
    assert "\n" not in str(caught.value)
    assert "rlplug info example" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("config", "values", "advice"),
    [
        (
            RunOptions,
            {"controller": [Base]},
            "got `type`; write the import path of a class as a string: ['./file.py:Name']",
        ),
        (RunOptions, {"wrap": Base}, "got `type`; write the import path of a class as a string: ['./file.py:Name']"),
        (Net, {"factory": Base}, "got `type`; write the import path of a class as a string: './file.py:Name'"),
        (Net, {"activation": torch.nn.ReLU}, "got `type`; write its name, one of tanh, relu, "),
        (Net, {"activation": torch.nn.ReLU()}, "got `ReLU`; write its name, one of tanh, relu, "),
        (RunOptions, {"wrap": 3}, "expected `array`, got `int` ('rlplug info"),
    ],
)
def test_class_instead_of_a_string_names_the_string(config: type[Any], values: dict[str, Any], advice: str) -> None:
    with pytest.raises(BadConfig) as caught:
        convert(config, values, "example")
    assert advice in str(caught.value)


# From text to values.

TEXTS = [
    ("n_steps", "12", 12), ("n_steps", "1_000", 1000), ("learning_rate", "1e-4", 1e-4), ("learning_rate", "3", 3.0),
    ("flag", "True", True), ("flag", "no", False), ("limit", "none", None), ("limit", "0.5", 0.5),
    ("sizes", "64,32", [64, 32]), ("sizes", "[64, 32]", [64, 32]),
    ("sizes", "(64,)", [64]), ("sizes", "64", [64]), ("sizes", "", []),
    ("name", "none", "none"), ("name", "12", "12"), ("mode", "slow", "slow"), ("other.hidden", "8", [8]),
]  # fmt: skip


@for_each("name, text, value", TEXTS)
def test_parse_converts_text_to_the_type_of_the_option(name: str, text: str, value: Any) -> None:
    parsed = parse(OPTIONS[name], text)
    assert parsed == value
    assert type(parsed) is type(value)
    convert(Example, {name: parsed}, "example")


@pytest.mark.parametrize(
    ("name", "text"),
    [("n_steps", "1.5"), ("n_steps", "x"), ("learning_rate", "fast"), ("flag", "maybe"), ("sizes", "a,b")],
)
def test_parse_returns_invalid_text_unchanged(name: str, text: str) -> None:
    assert parse(OPTIONS[name], text) == text
    with pytest.raises(BadConfig, match=f"option '{name}'"):
        convert(Example, {name: parse(OPTIONS[name], text)}, "example")


@given(st.sampled_from(sorted(OPTIONS)), st.text(max_size=20))
def test_any_text_converts_or_raises_bad_config(name: str, text: str) -> None:
    with suppress(BadConfig):
        config = convert(Example, {name: parse(OPTIONS[name], text)}, "example")
        assert convert(Example, flatten(config), "example") == config


def test_none_can_be_a_string() -> None:
    assert convert(Example, {"limit": 2.0}, "example").limit == 2.0
    assert convert(Example, {"limit": "none"}, "example").limit is None
    with pytest.raises(BadConfig, match="option 'n_steps'"):
        convert(Example, {"n_steps": "none"}, "example")


def test_search_ranges() -> None:
    assert (uniform(0, 1).kind, uniform(0, 1).values) == ("uniform", (0, 1))
    assert choice("a", "b") == Range("choice", ("a", "b"))


def test_every_run_option_has_help() -> None:
    assert all(option.help for option in schema(RunOptions))


def test_watch_records_the_options_that_are_read() -> None:
    config = Example()
    names = set[str]()
    copied = watch(config, names)
    assert isinstance(copied, Example)
    assert not names
    assert copied.n_steps == config.n_steps
    assert names == {"n_steps"}
    assert type(config) is Example
    with pytest.raises(dataclasses.FrozenInstanceError):
        copied.n_steps = 1  # type: ignore[misc]


def test_watch_counts_all_options_of_a_class_with_slots() -> None:
    config = dataclasses.make_dataclass("Slots", [("a", int, 1)], frozen=True, slots=True)()
    names: set[str] = set()
    assert watch(config, names) is config
    assert names == {"a"}
