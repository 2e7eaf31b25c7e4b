"""Imports all modules and trains a run in a process that imitates Windows; `nox -s portable` runs the main job."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.portable.test_job import IMPORTS, PACKAGES, TINY, windows_environment

ROOT = Path(__file__).parents[2]
DISGUISE = ROOT / "tests" / "portable" / "disguise" / "sitecustomize.py"
#: Trains in the process that has imported all modules.
RUN = f"""
from rlplug_cli.__main__ import main
assert main(["run", "a2c", "CartPole-v1", *{TINY}, "--name", "tiny", "-P", "no:mlflow"]) == 0
"""
#: Files that use names that Windows lacks, and the reason why Windows never runs this code.
NOT_ON_WINDOWS = {
    "process_guard.py": "after a test for os.fork",
    "task.py": "Slurm",
    "signals.py": "after a test for pthread_sigmask, or in forked processes",
    "directory.py": "after a test for O_DIRECTORY",
    "processor.py": "after a test for Linux",
}


def test_rlplug_works_without_names_that_windows_lacks(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-c", IMPORTS + RUN, *PACKAGES]
    result = subprocess.run(words, env=windows_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("None nt\n"), result.stdout
    assert (tmp_path / "runs" / "tiny" / "journal.jsonl").stat().st_size > 0


def test_sources_check_names_that_windows_lacks() -> None:
    """A use of `os.NAME` needs `hasattr(os, "NAME")` or `getattr` in the same file, or a reason above."""
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(DISGUISE.read_bytes()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NAMES"
    )
    wrong = []
    for path in sorted(ROOT.glob("rlplug*/src/**/*.py")):
        tree = ast.parse(path.read_bytes())
        strings = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        wrong += [f"{path.name}: {use}" for use, name in uses(tree, names) if name not in strings]
    assert {fault.partition(":")[0] for fault in wrong} == set(NOT_ON_WINDOWS), wrong


def uses(tree: ast.AST, names: dict[str, str]) -> list[tuple[str, str]]:
    """Return the uses of names that Windows lacks: `os.fork` and `fork`."""
    pairs: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        module: Any = getattr(getattr(node, "value", None), "id", "")
        if isinstance(node, ast.Attribute) and node.attr in names.get(module, "").split():
            pairs.append((f"{module}.{node.attr}", node.attr))
    return pairs
