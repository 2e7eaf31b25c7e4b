"""How much memory the first command takes, process by process.

python bench/memory.py      # `rlplug run a3c CartPole-v1`, three times with numba and three without: two minutes
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import psutil
from peers import proportional
from results import machine, revision, table, write_section

#: Seconds between two looks; each stops the processes for some milliseconds.
GLANCE = 0.5
HEADING = """## Memory of `rlplug run a3c CartPole-v1`

`python bench/memory.py`"""
NOTE = """Proportional set sizes (shared pages divided among those that share them); each row's own peak, the whole
tree's peak at one moment; medians of {runs} runs. Workers are forks of the run, and share what it has loaded; sending
to MLflow is a process of its own, which loads MLflow, and at the end what writes the table of episodes. {machine};
rlplug at {revision}."""
ROLES = ("parent", "worker 1", "worker 2", "sender to MLflow", "whole tree")
#: With numba where it is installed; and as where it is not.
COLUMNS = {"peak, MiB": "1", "with numba": "0"}


def measure(without: str) -> dict[str, float]:
    """One run, `without` numba if that is "1": the peak of each role in MiB."""
    rlplug = Path(sys.executable).with_name("rlplug")
    peaks: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as directory:
        command = [str(rlplug), "run", "a3c", "CartPole-v1"]
        environ = {**os.environ, "NUMBA_DISABLE_JIT": without}
        quiet = subprocess.DEVNULL
        started = subprocess.Popen(command, cwd=directory, stdout=quiet, stderr=quiet, env=environ)
        root = psutil.Process(started.pid)
        while True:
            for role, size in seen(root).items():
                peaks[role] = max(peaks[role], size)
            try:
                code = started.wait(GLANCE)
                break
            except subprocess.TimeoutExpired:
                continue
    if code:
        raise SystemExit(f"{' '.join(command)} failed with {code}")
    return dict(peaks)


def seen(root: psutil.Process) -> dict[str, float]:
    """What each role takes now, in MiB."""
    try:
        tree = [root, *root.children(recursive=True)]
        names = [role(process, root) for process in tree]
    except psutil.NoSuchProcess:
        return {}
    workers = iter(ROLES[1:3])
    named = [next(workers, "other") if name == "worker" else name for name in names]
    sizes = dict.fromkeys(named, 0.0)
    for name, process in zip(named, tree, strict=True):
        sizes[name] += proportional(process)
    return {**sizes, "whole tree": sum(sizes.values())}


def role(process: psutil.Process, root: psutil.Process) -> str:
    """What a process of the tree is there for."""
    words = " ".join(process.cmdline())
    if process == root:
        return "parent"
    if "rlplug_cli.mlflow.sender" in words:
        return "sender to MLflow"
    return "worker"


def section(columns: dict[str, list[dict[str, float]]]) -> str:
    """The text for RESULTS.md."""
    medians = [
        [
            name,
            *(
                f"{statistics.median(run.get(name, 0.0) for run in runs):.0f}"
                for runs in columns.values()
            ),
        ]
        for name in ROLES
    ]
    note = NOTE.format(
        runs=len(next(iter(columns.values()))), machine=machine(), revision=revision()
    )
    return f"{HEADING}\n\n{table(['process', *columns], medians)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--write", action="store_true", help="write the table into bench/RESULTS.md too"
    )
    given = parser.parse_args()
    text = section(
        {name: [measure(without) for _ in range(given.runs)] for name, without in COLUMNS.items()}
    )
    print(text)
    if given.write:
        write_section("memory", text)


if __name__ == "__main__":
    main()
