"""Variants: entry points with the class of another algorithm and their own presets; all commands use the presets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import plugins
from rlplug_core.runs.api import train
from rlplug_core.testing import checks
from rlplug_core.testing.distributions import write_distribution

TOML = """
extends = "dqn"
summary = "Double DQN"
[default]
double = true
n_step = 3
num_envs = 2
"""


@pytest.fixture
def variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed plugin that has only metadata, a preset file and an imported class."""
    points = {"rlplug.algorithms": {"twice": "twice:Twice"}}
    files = {"twice/__init__.py": "from rlplug_algos.value.dqn import DQN as Twice", "twice/presets/twice.toml": TOML}
    write_distribution(tmp_path, "rlplug-twice", points, files, requires=["rlplug-core>=0.1,<1"])
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.refresh()
    yield "twice"
    monkeypatch.undo()
    plugins.refresh()


@pytest.fixture
def output_of(variant: str, rlplug: Callable[..., Any]) -> Callable[..., str]:
    """A function that returns the output of a command."""
    return lambda *words: str(rlplug(*words).out)


def test_help_shows_the_defaults_of_the_variant(output_of: Callable[..., str]) -> None:
    text = " ".join(output_of("run", "twice", "--help").split())
    assert re.search(r"--double / --no-double [^[]+\[yes\]", text)
    assert re.search(r"--n-step INTEGER [^[]+\[3\]", text)
    assert re.search(r"--num-envs INTEGER [^[]+\[2\]", text)
    assert "[no]" in re.findall(
        r"--double / --no-double [^[]+(\[\w+\])", " ".join(output_of("run", "dqn", "--help").split())
    )


def test_info_shows_defaults_and_tuning_ranges(output_of: Callable[..., str]) -> None:
    description = json.loads(output_of("info", "twice", "--json"))
    options = {option["name"]: option for option in description["options"]}
    run_options = {option["name"]: option["default"] for option in description["run_options"]}
    assert (options["double"]["default"], options["n_step"]["default"], run_options["num_envs"]) == (True, 3, 2)
    assert options["n_step"]["search"]["values"] == [1, 5]


def test_preset_of_an_environment_includes_both_presets(output_of: Callable[..., str]) -> None:
    """dqn's preset for CartPole, overridden by that of the variant."""
    ours, theirs = (json.loads(output_of("info", name, "CartPole-v1", "--json"))["preset"] for name in ("twice", "dqn"))
    assert ours == {**theirs, "double": True, "n_step": 3, "num_envs": 2}


def test_run_uses_the_presets_of_the_variant(variant: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"total_timesteps": 60, "n_step": 2, "final_eval_episodes": 0, "eval_episodes": 1}
    config = train(variant, "rlplug_core.testing.envs:Chain", options, out=tmp_path, hooks=False).config
    assert [config["options"][name] for name in ("double", "n_step", "num_envs")] == [True, 2, 2]
    assert [config["origins"][name] for name in ("double", "n_step", "num_envs")] == ["preset", "option", "preset"]


def test_conformance_kit_checks_the_variant(variant: str) -> None:
    by_name = {check.name: check for check in checks(variant)}
    by_name["presets"]()
    config = by_name["presets"].examination.subject.config
    assert (config.double, config.n_step) == (True, 3)
