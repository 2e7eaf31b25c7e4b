"""Runs, exports and shared agents of earlier versions give the same actions; runs resume or say why they cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlplug_core import load, resume
from rlplug_core.errors import RlplugError
from rlplug_core.runs import Run, pull_agent
from tests.museum.make import HERE, OBSERVATIONS, RUNS
from tests.tables import for_each

VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "ppo.json").is_file())
CASES = [(version, name) for version in VERSIONS for name in RUNS if (HERE / version / f"{name}.json").is_file()]


def actions(place: Path) -> list[int]:
    policy = load(place)
    return [int(policy(observation)) for observation in OBSERVATIONS]


def test_museum_has_the_first_version() -> None:
    assert "0.1.0" in VERSIONS


@for_each("version, name", CASES)
def test_old_policy_gives_the_same_actions(version: str, name: str) -> None:
    place = HERE / version
    expected = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
    assert len(set(expected)) > 1  # a constant policy would prove little
    for form in (name, f"{name}-export", f"{name}-shared"):
        assert actions(place / form) == expected, form


@for_each("version, name", CASES)
def test_old_agent_can_be_pulled(tmp_path: Path, version: str, name: str) -> None:
    folder = pull_agent(str(HERE / version / f"{name}-shared"), tmp_path / f"{version}-{name}")
    assert Run(folder).summary().status == "finished"


@pytest.mark.usefixtures("place")
@for_each("version, name", CASES)
def test_old_run_resumes_or_says_why_it_cannot(tmp_path: Path, version: str, name: str) -> None:
    """Another account wrote the run, but it names no code."""
    copy = tmp_path / f"{version}-{name}"
    shutil.copytree(HERE / version / name, copy)
    message = ""
    try:
        resume(copy, total_timesteps=96, hooks=False)
    except RlplugError as error:
        message = str(error)
    assert f"=={version}" in message or Run(copy).summary().steps == 96  # a pip command, or the steps
