"""rlplug works with damaged metadata and disabled packages; `tests/ecosystem` has a museum of bad plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import __version__
from rlplug_core.testing.distributions import write_distribution


def test_unreadable_metadata_does_not_hide_other_plugins(
    rlplug: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = write_distribution(tmp_path, "rlplug-torn", {}, {})
    (torn / "entry_points.txt").write_text("[rlplug.algorithms]\nno equals sign\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = rlplug("plugins")
    assert "of rlplug-torn 1.0 is broken: its metadata cannot be parsed" in result.out
    assert "a2c" in rlplug("list").out


def test_disabled_plugins_are_disabled_in_child_processes(
    rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "flatten")
    rlplug("plugins", "-P", "no:mlflow")
    script = "from rlplug_core.plugins import records; print([r.status for r in records() if r.id == 'mlflow'])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "['disabled']\n"
    assert os.environ["RLPLUG_DISABLED_PLUGINS"] == "flatten,mlflow"


def test_command_line_works_without_algorithms_and_environments(process: Callable[..., Any]) -> None:
    off = {"RLPLUG_DISABLED_PLUGINS": "rlplug-algos,rlplug-envs"}
    for words in ("--help", "list", "plugins", "runs", "run --help", "doctor"):
        assert process(*words.split(), **off).code == 0
    result = process("run", "a2c", "CartPole-v1", **off)
    assert result.code == 3
    disabled = f"'a2c' of rlplug-algos {__version__} is disabled: 'rlplug-algos' is disabled by RLPLUG_DISABLED_PLUGINS"
    assert disabled in result.err
