"""The package rlplug-zoo: its agents are complete and safe, and `zoo:NAME` finds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlplug_core.runs import pull_agent, zoo_agents
from tests.cli.conftest import Result

ROOT = Path(__file__).parents[2] / "rlplug-zoo"
AGENTS = ROOT / "src" / "rlplug_zoo" / "agents"


@pytest.fixture(autouse=True)
def install_zoo(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the package on the path."""
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


def test_agents_pass_the_checks_of_a_pull(place: Path) -> None:
    names = zoo_agents()
    assert len(names) >= 40
    for number, name in enumerate(names):
        folder = pull_agent(f"zoo:{name}", place / str(number))
        about = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
        assert name == f"{about['algorithm']}/{about['env']}"
        assert about["reproduce"].startswith(f"rlplug run {about['algorithm']} {about['env']} --set total_timesteps=")
    assert "rlplug_zoo" not in sys.modules  # found without an import


def test_package_is_small_and_has_no_code() -> None:
    files = [path for path in AGENTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 30e6
    assert {path.suffix for path in files} <= {".json", ".jsonl", ".md", ".safetensors"}


def test_table_lists_all_agents() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in readme.splitlines() if line.startswith("| `zoo:")] == [
        f"zoo:{name}" for name in zoo_agents()
    ]


def test_play_and_evaluate_an_agent_of_the_zoo(
    rlplug: Callable[..., Result], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    listed = rlplug("pull", "zoo:")
    assert "zoo:ppo/CartPole-v1" in listed.out.splitlines()
    played = rlplug("play", "zoo:ppo/CartPole-v1", "--every", "50")
    assert played.code == 0, played.err
    assert [path.stem for path in place.glob("zoo*.*")] == ["zoo-ppo-CartPole-v1"]
    result = json.loads(rlplug("evaluate", "zoo:ppo/CartPole-v1", "--episodes", "5", "--json").out)
    assert result["return_mean"] > 400
    near = rlplug("play", "zoo:ppo/CartPole-v2")
    assert "did you mean 'ppo/CartPole-v1'" in near.err
