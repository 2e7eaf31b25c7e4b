"""More than a thousand hostile files: no code runs, no link is followed, and each answer is one sentence."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults import shared, strangers
from tests.faults.hostile import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return World(tmp_path)


@pytest.mark.parametrize("part", range(4))
def test_hostile_files(world: World, part: int) -> None:
    cases = list(world.cases(random.Random(int(os.environ.get("RLPLUG_HOSTILE_SEED", "1")))))
    assert len(cases) > 1000
    wrong = [error for case in cases[part::4] for error in world.find_errors(case)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(4))
def test_hostile_directories(world: World, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_cli.sweep.executors.LocalPlace.start", strangers.start_nothing)
    cases = list(strangers.cases(world, random.Random(int(os.environ.get("RLPLUG_HOSTILE_SEED", "1")))))
    assert len(cases) > 600
    wrong = [error for case in cases[part::4] for error in world.find_errors(case)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(2))
def test_hostile_shared_files(world: World, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.folder / "cache"))
    draw = random.Random(int(os.environ.get("RLPLUG_HOSTILE_SEED", "1")))
    cases = list(shared.cases(world, draw, monkeypatch.setenv))
    monkeypatch.setattr("rlplug_cli.sweep.executors.LocalPlace.start", strangers.start_nothing)
    assert len(cases) > 400
    wrong = [error for case in cases[part::2] for error in world.find_errors(case)]
    assert not wrong, "\n".join(wrong)
