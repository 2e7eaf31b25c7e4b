"""Commands that only show information, and completion, import no plugin, torch, gymnasium, mlflow or numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlplug_cli.app import app
from rlplug_core.testing.distributions import write_distribution
from tests.cli.histories import write_run
from tests.core.sharing.agents import agent_files, put, with_manifest
from tests.tables import for_each

#: Packages that these commands may import in addition to the standard library and rlplug.
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
modules = sorted(set(sys.modules) - before)
print(json.dumps({"modules": modules, "code": code, "out": out.buffer.getvalue().decode(), "loaded": sorted(loaded)}))
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


@for_each(
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
        "info a3c CartPole-v1 --json",  # its text ends with the networks, which need torch
        "run --help",
        "run a3c --help",
        "resume --help",
        "evaluate --help",
        "ui --help",
        "sync --help",
    ],
)
def test_informational_commands_import_little(words: str) -> None:
    result = call(*words.split())
    assert result["code"] == 0
    assert is_light(result), result["loaded"]


@pytest.mark.parametrize(("words", "most"), [("list", 90), ("run a3c --help", 136)])
def test_informational_commands_import_few_modules(words: str, most: int) -> None:
    """A module adds 0.2 to 20 ms to every start; a new one needs a reason and a larger number here."""
    modules = call(*words.split())["modules"]
    assert isinstance(modules, list)
    assert not {"subprocess", "rlplug_core.runs.listing"} & {*modules}
    assert len(modules) <= most, modules


def test_pull_does_not_import_the_compiler_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a second of processor time, a third of the command."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "shared", with_manifest(agent_files()))
    result = call("pull", "shared", "--out", "agents")
    assert result["code"] == 0, result["out"]
    assert not {"torch._dynamo", "sympy", "mlflow"} & set(result["modules"])  # type: ignore[call-overload]


def test_compare_does_not_import_torch(tmp_path: Path) -> None:
    """The import takes a second of processor time and 160 MB."""
    result = call("compare", str(write_run(tmp_path / "one", [1.0, 2.0])))
    assert result["code"] == 0, result["out"]
    assert not {"torch", "mlflow", "gymnasium", "matplotlib"} & {*result["loaded"]}  # type: ignore[misc]


def test_doctor_imports_only_hooks_in_addition() -> None:
    result = call("doctor")
    assert result["code"] == 0, result["out"]
    assert is_light(result, "pluggy"), result["loaded"]


@for_each(
    "words, output",
    [
        ("rlplug ru", "run"),
        ("rlplug run a2", "a2c"),
        ("rlplug run a2c --total", "--total-timesteps"),
        ("rlplug run a2c CartPole-v1 --runner a", "async"),
        ("rlplug run ./f", "./f"),
        ("rlplug run ./f.py:C CartPole-v1 --see", "--seed"),
        ("rlplug run ppo CartPole-v1 --set net.hi", "net.hidden="),
        ("rlplug run ppo cartp", "CartPole-v1"),
    ],
)
def test_completion_imports_little(words: str, output: str) -> None:
    number = str(len(words.split()) - 1)
    result = call(_RLPLUG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number)
    assert output in str(result["out"]), result
    assert is_light(result), result["loaded"]


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("rlplug resume ", ["one", "sweep/two"]),
        ("rlplug evaluate sw", ["sweep/two"]),
        ("rlplug runs rm one sweep/", ["sweep/two"]),
        ("rlplug compare sw", ["sweep", "sweep/two"]),
        ("rlplug run ppo CartPole-v1 --init o", ["one"]),
        ("rlplug play one --checkpoint st", ["step-000000000010"]),
        ("rlplug evaluate one --checkpoint b", ["best", "best-000000000005"]),
        ("rlplug run ppo phys2d/", []),  # its packages are not installed
    ],
)
def test_completion_suggests_runs_and_checkpoints(
    words: str, completions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("one/config.json", "sweep/sweep.json", "sweep/two/config.json"):
        (tmp_path / "runs" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / file).touch()
    for name in ("best-000000000005", "step-000000000010"):
        (tmp_path / "runs" / "one" / "checkpoints" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    number = len(words.split()) - (not words.endswith(" "))
    env = {"_RLPLUG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    message = CliRunner().invoke(app, env=env, prog_name="rlplug").output.split()
    assert [word.removeprefix("plain,") for word in message] == completions


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells(shell: str) -> None:
    word = {"zsh": "3", "fish": "--see"}[shell]
    result = call(_RLPLUG_COMPLETE=f"{shell}_complete", COMP_WORDS="rlplug run a2c --see", COMP_CWORD=word)
    assert "--seed" in str(result["out"]), result
    assert is_light(result), result["loaded"]


def test_completion_does_not_import_an_algorithm_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"rlplug.algorithms": {"slow": "rlplug_slow:Slow"}}
    write_distribution(tmp_path, "rlplug-slow", points, {"rlplug_slow/__init__.py": "raise SystemExit(7)"})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    words = "rlplug run slow CartPole-v1 --se"
    result = call(_RLPLUG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4")
    assert "--seed" in str(result["out"])
    assert call("list")["code"] == 0


INTERRUPT = """
import signal, sys


class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            signal.raise_signal(signal.SIGINT)


from rlplug_cli.__main__ import main
MODULE, sys.argv = sys.argv[1], ["rlplug", "list"]
sys.meta_path.insert(0, Interrupts())
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["rlplug_core.errors", "click", "rlplug_cli.app", "rlplug_core.loop.safe_streams"])
def test_ctrl_c_during_imports_prints_one_sentence(module: str) -> None:
    result = subprocess.run([sys.executable, "-c", INTERRUPT, module], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "rlplug: stopped\n")
