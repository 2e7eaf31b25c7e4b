"""Indices, presets and the command of the first-party packages fit their code."""

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


def ours(group: str) -> list[Record]:
    return [record for record in plugins.records() if record.first_party and record.group == group]


def test_indices_of_wrappers_and_controllers_are_current() -> None:
    found = [*ours("wrappers"), *ours("controllers")]
    assert found
    assert not [indexing.drift(record) for record in found if indexing.drift(record)]


@pytest.mark.parametrize("record", ours("envs"), ids=str)
def test_a_provider_s_index_is_valid(record: Record) -> None:
    # Which ids there are depends on the installed Gymnasium, so the file may differ from what would be written here.
    found, reason = index.read(record)
    assert reason == ""
    assert found is not None
    one = {
        "envpool": "envpool:CartPole-v1", "gymnasium": "CartPole-v1", "pettingzoo": "pettingzoo/mpe2.simple_spread_v3",
        "tensor": "tensor/CartPole-v1", "gymnax": "gymnax/CartPole-v1", "brax": "brax/ant",
        "playground": "playground/CheetahRun", "jumanji": "jumanji/Snake-v1",
    }  # fmt: skip
    assert one[record.id] in found.ids


def test_presets_are_resolved_with_existing_options() -> None:
    for record in ours("algorithms"):
        for name in preset_files.read(record).tables:
            env = "CartPole-v1" if name == "default" else name.replace("*", "x")
            values = preset(record.id, env)
            plan: Any = Plan.make(record.id, env, values)
            assert values, (record.id, name)
            wanted = {key: None if value == "none" else value for key, value in values.items()}
            assert {key: plan.flat[key] for key in values} == wanted, (record.id, name)


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="rlplug")
    assert script.load() is main


def test_the_known_plugins_are_the_entry_points_of_these_packages() -> None:
    """Suggestions name them where they are not installed, so they are a list of their own."""
    found: dict[str, dict[str, str]] = {group: {} for group in KNOWN}
    for path in ROOT.glob("rlplug-*/pyproject.toml"):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for group, names in project.get("entry-points", {}).items():
            if group == "rlplug.contract" or not group.startswith("rlplug."):
                continue
            found[group.removeprefix("rlplug.")] |= dict.fromkeys(names, project["name"])
    assert found == KNOWN


def test_the_reserved_names_of_the_command_line_are_its_parameters() -> None:
    command = run.get_command(click.Context(run), "ppo")
    assert isinstance(command, AlgorithmCommand)
    own = {str(one.name) for one in command.params if not isinstance(one, SchemaOption) and one.expose_value}
    assert own | {"algorithm", "help", "traceback"} == reserved.COMMAND_LINE
