"""A sweep and a study that are killed repeatedly run all missing runs, and none twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import many


@pytest.mark.parametrize("command", list(many.COMMANDS))
def test_killed_command_runs_all_missing_runs_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "tune":
        pytest.importorskip("optuna")
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    outcome = many.kill_repeatedly(command, tmp_path, kills=6)
    assert outcome.kills.total() == 6
    assert outcome.wrong == []
