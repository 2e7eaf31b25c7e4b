"""Indices, presets and the command of the first-party packages fit their code."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest

from rlplug_cli.__main__ import main
from rlplug_core import plugins
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import index, indexing, preset_files
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.records import Record


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
