"""A wait of more than two seconds prints its reason; a shorter one prints nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.config.import_path import import_path
from rlplug_core.errors import Interrupted
from rlplug_core.loop import notices
from rlplug_core.runs.api import train
from rlplug_core.testing.envs import Chain
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def shorten_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "SILENCE", 0.05)


def test_only_long_wait_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(notices, "SILENCE", PATIENCE)  # a wait that is short, however busy the machine is
        with notices.notice("short"):
            pass
    with notices.notice("long"):
        time.sleep(0.5)
    assert capsys.readouterr().err == "rlplug: long\n"


class Slow(Chain):
    """Takes long to start, and to step after a signal."""

    signals = False

    def __init__(self, num_envs: int = 1) -> None:
        super().__init__(num_envs)
        time.sleep(0.2)

    def step(self, action: Any) -> Any:
        if Slow.signals:
            Slow.signals = False
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)
        return super().step(action)


SHORT = {"total_timesteps": 64, "eval_episodes": 1, "final_eval_episodes": 0}


def test_start_and_stop_report_a_long_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def watch(progress: Any) -> None:
        Slow.signals = True

    with pytest.raises(Interrupted):
        train("tests.core.tiny_q:TinyQ", Slow, SHORT, out=tmp_path, hooks=False, watch=watch)
    output = capsys.readouterr().err
    assert f"making and trying {Slow.__module__}:Slow; training starts after that" in output
    assert "starting the environments and the processes of the run" in output
    assert notices.STOP_NOTICE in output


def test_import_path_of_user_code_is_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "inventory_of_mine.py"
    file.write_text("class Inventory: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    import inventory_of_mine  # type: ignore[import-not-found]

    assert import_path(inventory_of_mine.Inventory) == (f"{file.resolve()}:Inventory", "")
    assert import_path(Chain) == ("rlplug_core.testing.envs:Chain", "")
    assert import_path(Path) == ("pathlib:Path", "")
    sys.modules.pop("inventory_of_mine")
