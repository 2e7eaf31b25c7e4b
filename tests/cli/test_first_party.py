"""Indices, presets and the command of the first-party packages match their code."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest

from rlplug_cli.__main__ import main
from rlplug_cli.commands.run import AlgorithmCommand
from rlplug_cli.commands.run import command as run
from rlplug_cli.parameters import SchemaOption
from rlplug_core import plugins
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import index, indexing, preset_files, reserved
from rlplug_core.plugins.known import KNOWN
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.records import Record

ROOT = Path(__file__).parents[2]


def first_party_records(group: str) -> list[Record]:
    return [record for record in plugins.records() if record.first_party and record.group == group]


def test_indices_of_wrappers_and_controllers_are_current() -> None:
    contributions = [*first_party_records("wrappers"), *first_party_records("controllers")]
    assert contributions
    assert not [indexing.drift(record) for record in contributions if indexing.drift(record)]


@pytest.mark.parametrize("record", first_party_records("envs"), ids=str)
def test_index_of_provider_is_valid(record: Record) -> None:
    # The ids depend on the installed Gymnasium, so the file may differ from a new one.
    entry, reason = index.read(record)
    assert reason == ""
    assert entry is not None
    known_ids = {
        "envpool": "envpool:CartPole-v1", "gymnasium": "CartPole-v1", "pettingzoo": "pettingzoo/mpe2.simple_spread_v3",
        "tensor": "tensor/CartPole-v1", "gymnax": "gymnax/CartPole-v1", "brax": "brax/ant",
        "playground": "playground/CheetahRun", "jumanji": "jumanji/Snake-v1",
    }  # fmt: skip
    assert known_ids[record.id] in entry.ids


def test_presets_use_existing_options() -> None:
    for record in first_party_records("algorithms"):
        for name in preset_files.read(record).tables:
            env = "CartPole-v1" if name == "default" else name.replace("*", "x")
            values = preset(record.id, env)
            plan: Any = Plan.make(record.id, env, values)
            assert values, (record.id, name)
            expected = {key: None if value == "none" else value for key, value in values.items()}
            assert {key: plan.flat[key] for key in values} == expected, (record.id, name)


def test_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="rlplug")
    assert script.load() is main


def test_known_plugins_match_the_entry_points() -> None:
    """A separate list exists because suggestions also name plugins that are not installed."""
    owners: dict[str, dict[str, str]] = {group: {} for group in KNOWN}
    for path in ROOT.glob("rlplug-*/pyproject.toml"):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for group, names in project.get("entry-points", {}).items():
            if group == "rlplug.contract" or not group.startswith("rlplug."):
                continue
            owners[group.removeprefix("rlplug.")] |= dict.fromkeys(names, project["name"])
    assert owners == KNOWN


def test_reserved_names_match_the_parameters_of_the_command_line() -> None:
    command = run.get_command(click.Context(run), "ppo")
    assert isinstance(command, AlgorithmCommand)
    own = {str(each.name) for each in command.params if not isinstance(each, SchemaOption) and each.expose_value}
    assert own | {"algorithm", "help", "traceback"} == reserved.COMMAND_LINE
