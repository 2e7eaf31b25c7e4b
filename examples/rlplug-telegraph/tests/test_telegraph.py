"""rlplug-telegraph writes all events of a run in order, and nothing without its environment variable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlplug_telegraph import hooks

from rlplug_core import train
from rlplug_core.plugins import Hooks

#: Options of a short run.
SHORT = {
    "total_timesteps": 300,
    "eval_episodes": 2,
    "final_eval_episodes": 2,
    "eval_every": 300,
    "n_steps": 16,
}
CHAIN = "rlplug_core.testing.envs:Chain"


@pytest.fixture(autouse=True)
def only_telegraph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Disable all other hook plugins."""
    monkeypatch.setenv("RLPLUG_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    monkeypatch.delenv(hooks.VARIABLE, raising=False)


def read_events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_run_is_reported_from_start_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hooks.VARIABLE, str(tmp_path / "wire.jsonl"))
    run = train("a2c", CHAIN, SHORT, out=tmp_path)
    events = read_events(tmp_path / "wire.jsonl")
    assert {(event["run"], event["directory"]) for event in events} == {(run.name, str(run.path))}
    assert events[0]["event"] == "start"
    assert (events[0]["algorithm"], events[0]["env"]) == ("a2c", CHAIN)
    assert {"log", "checkpoint"} <= {event["event"] for event in events[1:-1]}
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "finished")


def test_failure_is_reported_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hooks.VARIABLE, str(tmp_path / "wire.jsonl"))
    with pytest.raises(RuntimeError, match="the environment broke"):
        train("a2c", "rlplug_core.testing.envs:Crashing", SHORT, out=tmp_path)
    *_, error, end = read_events(tmp_path / "wire.jsonl")
    assert (error["event"], error["kind"]) == ("error", "RuntimeError")
    assert (end["event"], end["status"]) == ("end", "failed")


def test_nothing_is_written_without_the_variable(tmp_path: Path) -> None:
    run = train("a2c", CHAIN, SHORT, out=tmp_path)
    assert list(tmp_path.iterdir()) == [run.path]


def test_doctor_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    report: list[str] = []
    Hooks().doctor(report)
    monkeypatch.setenv(hooks.VARIABLE, "wire.jsonl")
    Hooks().doctor(report)
    ours = [sentence for sentence in report if sentence.startswith("telegraph")]
    assert "set RLPLUG_TELEGRAPH to a file" in ours[0]
    assert ours[1] == "telegraph: events go to wire.jsonl"
