"""What `rlplug new` makes: built, installed, checked, type-checked, tested, trained with, removed.

The tests stand in the order of that story and share one environment.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlplug_cli import scaffold
from tests.ecosystem.conftest import Place

#: How each kind is seen at work in a moment.
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
#: How each is made: its kind, an algorithm that replays, and an environment on a device.
MADE = {kind: (kind,) for kind in NAMES} | {
    "replay": ("algorithm", "--kind", "replay"),
    "tensor": ("env", "--kind", "tensor"),
}
SHORT = ("--total-timesteps", "1000", "--eval-episodes", "2", "--final-eval-episodes", "2")


@pytest.fixture(scope="module")
def installed(place: Place) -> Place:
    """The environment with the wheels of one new plugin of each kind, and of an algorithm in its other form."""
    for kind, name in NAMES.items():
        place.rlplug("new", *MADE[kind], name)
        place.at(home(place, kind)).run("python", "-m", "hatchling", "build", "--target", "wheel")
    place.pip("install", "--no-deps", *map(str, place.directory.glob("*/dist/*.whl")))
    return place


def home(place: Place, kind: str) -> Path:
    return place.directory / f"rlplug-{NAMES[kind]}"


def test_all_are_found(installed: Place) -> None:
    found = {row["id"]: row for row in json.loads(installed.rlplug("plugins", "--json").stdout)}
    for kind, name in NAMES.items():
        assert (found[name]["group"], found[name]["status"]) == (scaffold.KINDS[MADE[kind][0]].group, "ok")
    assert json.loads(installed.rlplug("info", "some-idea", "CartPole-v1", "--json").stdout)["preset"] == {
        "num_envs": 8
    }


def test_each_kind_is_made() -> None:
    assert {words[0] for words in MADE.values()} == scaffold.KINDS.keys()


@pytest.mark.parametrize("kind", NAMES)
def test_a_plugin_trains(installed: Place, kind: str) -> None:
    installed.rlplug(*RUNS[kind].split(), *SHORT, "--name", kind)
    lines = (installed.directory / "runs" / kind / "some-notes.log").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "started {1} on {2}".format(*RUNS[kind].split())
    assert lines[-1] == "finished"


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(tuple(scaffold.KINDS), id="kinds"),
        pytest.param(("replay", "tensor"), id="forms", marks=pytest.mark.slow),
    ],
)
def test_a_type_checker_finds_nothing(installed: Place, kinds: tuple[str, ...]) -> None:
    """Two processes check them all with what one of them says for mypy; the forms have modules of the same names."""
    folders = [str(home(installed, kind) / folder) for kind in kinds for folder in ("src", "tests")]
    words = ("--config-file", str(home(installed, kinds[0]) / "pyproject.toml"), *folders)
    said = installed.run("python", "-m", "mypy", "--cache-dir", str(installed.directory / "mypy"), *words).stdout
    assert said.startswith("Success: no issues found")


@pytest.mark.parametrize("skipped", ["replay", pytest.param("", marks=pytest.mark.slow)])
def test_plugins_pass_their_own_tests(installed: Place, skipped: str) -> None:
    """In one process. The tutorial, which is `slow`, runs those of an algorithm; those of a replay take long."""
    homes = [home(installed, kind) for kind in NAMES if kind not in ("algorithm", skipped)]
    words = ("-m", "pytest", "-v", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", ".")
    said = installed.run("python", *words, *(str(path / "tests") for path in homes)).stdout
    assert [path.name for path in homes if f"\n{path.name}/tests/" not in said] == []
