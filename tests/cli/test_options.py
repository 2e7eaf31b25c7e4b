"""Option values of the command line: types, precedence, origins, help."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlplug_cli import arguments
from rlplug_cli.collecting import collect
from rlplug_cli.parameters import SchemaOption, parse_option, variable
from rlplug_core import __version__
from rlplug_core.config import flat, read_toml
from rlplug_core.config.options import Config, Fraction
from rlplug_core.config.parse import convert
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadConfig
from rlplug_core.plugins.known import KNOWN
from tests.tables import for_each

#: Values on the command line; TOML allows no half of a surrogate pair.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES | st.none())
def test_environment_argument_survives_a_round_trip(value: object) -> None:
    words = list(arguments.argument_words({"env.config": value}))
    assert arguments.split_arguments(words) == ([], {"env.config": value})
    assert type(arguments.split_arguments(words)[1]["env.config"]) is type(value)


@dataclass(frozen=True)
class Net:
    hidden: tuple[int, ...] = (64, 64)  # units


@dataclass(frozen=True)
class Options(Config):
    learning_rate: Fraction = 0.5  # step size
    n_steps: int = 3  # number of steps
    anneal_lr: bool = True  # decay to 0
    kind: Literal["a_b", "c"] = "c"  # which
    limit: float | None = 2.0  # the limit
    text: str = "x"
    net: Net = Net()


SCHEMA = schema(Options)


def parse(*words: str) -> dict[str, Any]:
    """Return the values that click parses from the words."""
    command = click.Command("c", params=[SchemaOption(option, "algo") for option in SCHEMA])
    context = command.make_context("c", list(words))
    source = click.core.ParameterSource.COMMANDLINE
    return {name: value for name, value in context.params.items() if context.get_parameter_source(name) is source}


@for_each(
    "words, name, value",
    [
        ("--learning-rate 1e-3", "learning_rate", 0.001),
        ("--learning-rate 1", "learning_rate", 1.0),
        ("--n-steps 7", "n_steps", 7),
        ("--no-anneal-lr", "anneal_lr", False),
        ("--anneal-lr", "anneal_lr", True),
        ("--kind a_b", "kind", "a_b"),
        ("--limit none", "limit", None),
        ("--limit 3", "limit", 3.0),
        ("--text none", "text", "none"),
        ("--net.hidden 1,2,3", "net.hidden", [1, 2, 3]),
    ],
)
def test_option_has_its_type(words: str, name: str, value: Any) -> None:
    assert parse(*words.split()) == {variable(name): value}
    assert type(parse(*words.split())[variable(name)]) is type(value)


def test_omitted_options_have_no_values() -> None:
    assert parse() == {}


def test_precedence_is_option_set_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("learning_rate = 0.1\nn_steps = 1\nanneal_lr = false\n[net]\nhidden = [5]\n")
    given = parse("--learning-rate", "0.3")
    values, origins = collect(given, ["learning_rate=0.2", "n_steps=2"], tmp_path / "c.toml", SCHEMA, "algo")
    assert values == {"learning_rate": 0.3, "n_steps": 2, "anneal_lr": False, "net.hidden": [5]}
    assert origins == {"learning_rate": "option", "n_steps": "set", "anneal_lr": "config", "net.hidden": "config"}


@pytest.mark.parametrize(
    "pair", ["learning_rate=2", "learning_rate=x", "n_steps=1.5", "kind=b", "net.hidden=a", "anneal_lr=perhaps"]
)
def test_invalid_value_of_set_is_refused(pair: str) -> None:
    with pytest.raises(BadConfig, match=r"algo: option '.*': expected .*, got '.*' \('rlplug info algo'"):
        collect({}, [pair], None, SCHEMA, "algo")


@pytest.mark.parametrize("line", ["learning_rate = true", "n_steps = true", "anneal_lr = 1"])
def test_booleans_in_a_file_are_not_numbers(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(line)
    with pytest.raises(BadConfig, match=r"expected (a number|an integer|yes or no)"):
        collect({}, [], tmp_path / "c.toml", SCHEMA, "algo")


def test_help_shows_type_default_and_meaning(rlplug: Callable[..., Any]) -> None:
    text = rlplug("run", "a2c", "--help").out
    assert "Loss:" in text
    assert "Evaluation:" in text
    assert "--gamma NUMBER" in text
    assert "discount per step  [0.99]" in text
    assert "--anneal-lr / --no-anneal-lr" in text
    assert "--net.hidden INTEGER,…" in text
    assert "--runner auto|sync|async|decoupled" in text


def test_underscores_count_as_hyphens(rlplug: Callable[..., Any]) -> None:
    assert "got 'x'" in rlplug("run", "a2c", "CartPole-v1", "--total_timesteps", "x").err


def test_info_shows_options_and_presets(rlplug: Callable[..., Any]) -> None:
    text = rlplug("info", "a2c").out
    assert f"plugin     rlplug-algos {__version__}" in text
    assert "gamma" in text
    assert "NUMBER ≥ 0 ≤ 1" in text
    data = json.loads(rlplug("info", "a2c", "CartPole-v1", "--json").out)
    options = {option["name"]: option for option in data["options"]}
    assert options["gamma"]["default"] == 0.99
    assert {option["name"] for option in data["run_options"]} > {"seed", "total_timesteps"}
    assert isinstance(data["preset"], dict)


def test_info_shows_the_preset_of_the_environments_kind(rlplug: Callable[..., Any]) -> None:
    env = "rlplug_core.testing.envs:Continuous"
    shown = json.loads(rlplug("info", "ppo", env, "--json").out)["preset"]
    Path("run.toml").write_text(rlplug("run", "ppo", env, "--print-config").out, encoding="utf-8")
    options = flat(read_toml(Path("run.toml")))
    assert shown
    assert {name: options[name] for name in shown} == shown
    assert shown != json.loads(rlplug("info", "ppo", "rlplug_core.testing.envs:Chain", "--json").out)["preset"]


def test_info_warns_about_an_unknown_environment(rlplug: Callable[..., Any]) -> None:
    result = rlplug("info", "ppo", "CartPol-v1")
    assert result.code == 0
    assert "no environment 'CartPol-v1' is known here; did you mean 'CartPole-v1'" in result.err
    assert rlplug("info", "ppo", "CartPole-v1").err == ""


def test_list_shows_every_algorithm_and_provider(rlplug: Callable[..., Any]) -> None:
    plugins = json.loads(rlplug("list", "--json").out)
    assert [row["id"] for row in plugins["algorithms"]] == sorted(KNOWN["algorithms"])
    names = ["brax", "envpool", "gymnasium", "gymnax", "jumanji", "pettingzoo", "playground", "tensor"]
    assert [row["id"] for row in plugins["envs"]] == names
    assert {row["id"] for row in plugins["wrappers"]} >= {"frame-stack", "time-limit"}
    text = rlplug("list").out
    assert all(word in text for word in ("a2c", "ppo", "gymnasium", "truncation", f"rlplug-algos {__version__}"))


def test_list_filters_algorithms_by_actions(rlplug: Callable[..., Any]) -> None:
    """The error about an unsuitable environment names this command."""
    text = rlplug("list", "--actions", "MultiBinary").out
    assert "ppo" in text
    assert "dqn" not in text
    assert "gymnasium" not in text
    rows = json.loads(rlplug("list", "--actions", "Discrete", "--json").out)["algorithms"]
    assert {"dqn", "ppo"} <= {row["id"] for row in rows}
    assert "sac" not in {row["id"] for row in rows}
    assert rlplug("list", "--actions", "multibinary").out == text
    lists = [rlplug("list", "--actions", space) for space in ("Dict", "Tuple")]
    assert "ppo " in lists[0].out
    assert lists[0] == lists[1], "agents treat a Tuple as a Dict"
    for space, near in (("Text", ""), ("Discret", "; did you mean 'Discrete'")):
        result = rlplug("list", "--actions", space)
        assert result.code == 2
        assert f"--actions {space}: no algorithm declares these{near}" in result.err
        assert "(declared are Box, D" in result.err
    assert "actions    Discrete, MultiDiscrete, MultiBinary, Box, Dict" in rlplug("info", "ppo").out


@pytest.mark.parametrize("way", ["typed", "set", "file", "python"])
def test_env_workers_can_be_auto(way: str, tmp_path: Path) -> None:
    """On the command line, in a file and in Python; the value is the number 0."""
    options = schema(RunOptions)
    given = {
        variable("env_workers"): parse_option(
            next(option for option in options if option.name == "env_workers"), "auto", "ppo"
        )
    }
    (tmp_path / "c.toml").write_text('env_workers = "auto"\n')
    ways = {"typed": (given, (), None), "set": ({}, ("env_workers=auto",), None), "file": ({}, (), tmp_path / "c.toml")}
    values = collect(*ways[way], options, "ppo")[0] if way in ways else {"env_workers": "auto"}
    assert convert(RunOptions, values, "ppo").env_workers == 0
    with pytest.raises(BadConfig, match="num_envs"):
        collect({}, ("num_envs=auto",), None, options, "ppo")
