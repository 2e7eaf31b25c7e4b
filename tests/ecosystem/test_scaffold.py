"""The plugins of `rlplug new` are built, installed, type-checked, tested and used in runs.

The tests share one environment.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlplug_cli import scaffold
from tests.ecosystem.conftest import Place

#: A short command that uses each kind.
RUNS = {
    "algorithm": "run some-idea CartPole-v1",
    "replay": "run some-memory CartPole-v1",
    "env": "run a2c some-place/SomePlace-v0",
    "tensor": "run a2c some-halls/SomeHalls-v0",
    "wrapper": "run a2c CartPole-v1 --wrap some-cost:cost=0.1",
    "controller": "run a2c CartPole-v1 --controller some-goal:times=2",
    "memory": "run a2c CartPole-v1 --memory some-past:units=8",
    "network": "run a2c CartPole-v1 --net.factory some-layers",
    "population": "run a2c CartPole-v1",
    "hooks": "run a2c CartPole-v1",
}
NAMES = {
    "algorithm": "some-idea",
    "replay": "some-memory",
    "env": "some-place",
    "tensor": "some-halls",
    "wrapper": "some-cost",
    "controller": "some-goal",
    "memory": "some-past",
    "network": "some-layers",
    "population": "some-rule",
    "hooks": "some-notes",
}
#: The arguments of `rlplug new`: the kind, an algorithm with replay, and an environment on a device.
ARGUMENTS = {kind: (kind,) for kind in NAMES} | {
    "replay": ("algorithm", "--kind", "replay"),
    "tensor": ("env", "--kind", "tensor"),
}
SHORT = ("--total-timesteps", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")


@pytest.fixture(scope="module")
def plugins(place: Place) -> Place:
    """The environment with the wheels of one new plugin of each kind and form."""
    for kind, name in NAMES.items():
        place.rlplug("new", *ARGUMENTS[kind], name)
        place.at(home(place, kind)).run("python", "-m", "hatchling", "build", "--target", "wheel")
    place.pip("install", "--no-deps", *map(str, place.directory.glob("*/dist/*.whl")))
    return place


def home(place: Place, kind: str) -> Path:
    return place.directory / f"rlplug-{NAMES[kind]}"


def test_new_plugins_are_found(plugins: Place) -> None:
    found = {row["id"]: row for row in json.loads(plugins.rlplug("plugins", "--json").stdout)}
    for kind, name in NAMES.items():
        assert (found[name]["group"], found[name]["status"]) == (scaffold.KINDS[ARGUMENTS[kind][0]].group, "ok")
    assert json.loads(plugins.rlplug("info", "some-idea", "CartPole-v1", "--json").stdout)["preset"] == {"num_envs": 8}


def test_every_kind_is_tested() -> None:
    assert {words[0] for words in ARGUMENTS.values()} == scaffold.KINDS.keys()


@pytest.mark.parametrize("kind", NAMES)
def test_new_plugin_trains(plugins: Place, kind: str) -> None:
    plugins.rlplug(*RUNS[kind].split(), *SHORT, "--name", kind)
    lines = (plugins.directory / "runs" / kind / "some-notes.log").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "started {1} on {2}".format(*RUNS[kind].split())
    assert lines[-1] == "finished"


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(tuple(scaffold.KINDS), id="kinds"),
        pytest.param(("replay", "tensor"), id="forms", marks=pytest.mark.slow),
    ],
)
def test_new_plugins_have_no_type_errors(plugins: Place, kinds: tuple[str, ...]) -> None:
    """The forms have modules of the same names as the kinds, so another process checks them."""
    folders = [str(home(plugins, kind) / folder) for kind in kinds for folder in ("src", "tests")]
    words = ("--config-file", str(home(plugins, kinds[0]) / "pyproject.toml"), *folders)
    output = plugins.run("python", "-m", "mypy", "--cache-dir", str(plugins.directory / "mypy"), *words).stdout
    assert output.startswith("Success: no issues found")


@pytest.mark.parametrize("skipped", ["replay", pytest.param("", marks=pytest.mark.slow)])
def test_new_plugins_pass_their_own_tests(plugins: Place, skipped: str) -> None:
    """In one process. The tutorial, which is `slow`, runs those of an algorithm; those of a replay are slow."""
    homes = [home(plugins, kind) for kind in NAMES if kind not in ("algorithm", skipped)]
    words = ("-m", "pytest", "-v", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", ".")
    output = plugins.run("python", *words, *(str(path / "tests") for path in homes)).stdout
    assert [path.name for path in homes if f"\n{path.name}/tests/" not in output] == []
