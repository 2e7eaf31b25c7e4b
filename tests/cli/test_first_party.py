"""What the first-party packages ship beside their code fits their code: indices, presets, the command itself."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.mark.parametrize("record", [*ours("wrappers"), *ours("controllers")], ids=str)
def test_an_index_is_current(record: Record) -> None:
    assert indexing.drift(record) == ""


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


def preset_tables() -> Iterator[tuple[str, str]]:
    for record in ours("algorithms"):
        for name in preset_files.read(record).tables:
            yield record.id, "CartPole-v1" if name == "default" else name.replace("*", "x")


@pytest.mark.parametrize(("algorithm", "env"), list(preset_tables()))
def test_a_preset_is_made_of_options_that_exist(algorithm: str, env: str) -> None:
    values = preset(algorithm, env)
    plan: Any = Plan.make(algorithm, env, values)
    assert values
    assert {name: plan.flat[name] for name in values} == {k: None if v == "none" else v for k, v in values.items()}


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="rlplug")
    assert script.load() is main
