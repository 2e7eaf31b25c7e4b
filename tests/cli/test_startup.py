"""What only shows something, and completion, load no plugin, no torch, no gymnasium, no mlflow, not even numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlplug_core.testing.distributions import write_distribution

#: What these commands may load besides the standard library and rlplug itself.
LIGHT = {"click", "msgspec", "typing_extensions"}

SCRIPT = """
import io, contextlib, json, sys
before = set(sys.modules)
from rlplug_cli.__main__ import main
out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
with contextlib.redirect_stdout(out):
    try:
        code = main(sys.argv[1:])
    except SystemExit as stop:
        code = stop.code
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(json.dumps({"code": code, "out": out.buffer.getvalue().decode(), "loaded": sorted(loaded)}))
"""


def call(*words: str, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def is_light(result: dict[str, object], *more: str) -> bool:
    return set(result["loaded"]) - {"rlplug_cli", "rlplug_core"} <= LIGHT | set(more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "list",
        "list --json",
        "list envs",
        "list envs --family atari --json",
        "plugins",
        "plugins --json",
        "runs",
        "runs --json",
        "info a3c",
        "info a3c CartPole-v1",
        "run --help",
        "run a3c --help",
        "resume --help",
        "evaluate --help",
        "ui --help",
        "sync --help",
    ],
)
def test_what_only_shows_something_is_light(words: str) -> None:
    result = call(*words.split())
    assert result["code"] == 0
    assert is_light(result), result["loaded"]


def test_doctor_adds_hooks_alone() -> None:
    result = call("doctor")
    assert result["code"] == 0, result["out"]
    assert is_light(result, "pluggy"), result["loaded"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("rlplug ru", "run"),
        ("rlplug run a2", "a2c"),
        ("rlplug run a2c --total", "--total-timesteps"),
        ("rlplug run a2c CartPole-v1 --runner a", "async"),
        ("rlplug run ./f", "./f"),
        ("rlplug run ./f.py:C CartPole-v1 --see", "--seed"),
    ],
)
def test_completion_is_light(words: str, found: str) -> None:
    number = str(len(words.split()) - 1)
    result = call(_RLPLUG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number)
    assert found in str(result["out"]), result
    assert is_light(result), result["loaded"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_completed_likewise(shell: str) -> None:
    word = {"zsh": "3", "fish": "--see"}[shell]
    result = call(_RLPLUG_COMPLETE=f"{shell}_complete", COMP_WORDS="rlplug run a2c --see", COMP_CWORD=word)
    assert "--seed" in str(result["out"]), result
    assert is_light(result), result["loaded"]


def test_completion_of_an_algorithm_without_an_index_imports_it_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"rlplug.algorithms": {"slow": "rlplug_slow:Slow"}}
    write_distribution(tmp_path, "rlplug-slow", points, {"rlplug_slow/__init__.py": "raise SystemExit(7)"})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    words = "rlplug run slow CartPole-v1 --se"
    result = call(_RLPLUG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4")
    assert "--seed" in str(result["out"])
    assert call("list")["code"] == 0
