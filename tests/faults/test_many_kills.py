"""A sweep and a study that are killed again and again end with what was missing, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import many


@pytest.mark.parametrize("command", list(many.COMMANDS))
def test_killed_and_typed_again_it_does_what_is_missing_and_nothing_twice(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "tune":
        pytest.importorskip("optuna")
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    outcome = many.killed(command, tmp_path, kills=6)
    assert outcome.kills.total() == 6
    assert outcome.wrong == []
