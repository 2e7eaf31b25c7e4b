"""Response time of the command line: help, listing, options of an algorithm and completion, compared with `nox --help`.

    python -m pip install nox && python bench/startup.py --write

A virtual environment adds the metadata of more distributions: first five plugins with one algorithm each, then 500
distributions, 50 of them plugins. Commands take turns, so a slow minute of the machine slows all of them. Ratios are
computed within a turn. A second table measures a search in a registry of 500 plugins, and the pull of a shared agent
from a folder with a film of one episode.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from results import machine, revision, table, write_section

from rlplug_core import plugins
from rlplug_core.plugins import index
from rlplug_core.testing.distributions import write_distribution

#: Number of extra distributions, number of algorithms among them, allowed time relative to `nox --help`.
SIZES = ((5, 5, 1.2), (500, 50, 1.6))
LINE = "rlplug run a3c CartPole-v1 --ro"
COMPLETION = {"_RLPLUG_COMPLETE": "bash_complete", "COMP_WORDS": LINE, "COMP_CWORD": "4"}
#: The other commands are compared with the first.
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "nox --help": (["-m", "nox", "--help"], {}),
    "rlplug --help": (["-m", "rlplug_cli", "--help"], {}),
    "rlplug list": (["-m", "rlplug_cli", "list"], {}),
    "rlplug run a3c --help": (["-m", "rlplug_cli", "run", "a3c", "--help"], {}),
    "completion of an option": (["-m", "rlplug_cli"], COMPLETION),
}
#: The most seconds of wall time that a search, and pulling and playing together, may take.
SEARCH = 0.2
PULL_AND_PLAY = 5
PLUGINS = 500
TRAINED = ("--total-timesteps", "4096", "--eval-episodes", "2", "--final-eval-episodes", "2")
#: A description of a few kilobytes, like a README; discovery should not have to parse it.
DESCRIPTION = "\n".join(
    f"A line of a description, number {number}, as READMEs have many." for number in range(80)
)


def environment(root: Path, distributions: int, algorithms: int) -> Path:
    """Create a virtual environment on top of this one with more distributions; return its interpreter."""
    venv.create(root, symlinks=True)
    (site,) = root.glob("lib/python*/site-packages")
    (site / "below.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    for number in range(distributions):
        if number < algorithms:
            write_plugin(site, f"extra{number}")
        else:
            points = {"console_scripts": {f"extra-{number}": f"extra{number}:main"}}
            info = write_distribution(site, f"extra-{number}", points, {f"extra{number}.py": ""})
            with open(info / "METADATA", "a", encoding="utf-8") as file:
                file.write(f"\n{DESCRIPTION}\n")
    return root / "bin" / "python"


def write_plugin(site: Path, id: str) -> None:
    """Write a plugin with an algorithm and an index as long as A3C's."""
    known, _ = index.read(plugins.find("algorithms", "a3c"))
    assert known is not None
    modules = {f"{id}.algorithm": hashlib.sha256(b"").hexdigest()}
    text = index.text(dataclasses.replace(known, id=id, modules=modules))
    files = {f"{id}/__init__.py": "", f"{id}/algorithm.py": "", f"{id}/index/{id}.json": text}
    points = {"rlplug.algorithms": {id: f"{id}.algorithm:Algorithm"}}
    info = write_distribution(
        site, f"rlplug-{id}", points, files, requires=["rlplug-core<0.2,>=0.1"]
    )
    with open(info / "METADATA", "a", encoding="utf-8") as file:
        file.write(f"\n{DESCRIPTION}\n")


def run_python(python: Path, words: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """Run a command; return milliseconds of processor time and of wall time."""
    # Without byte code each turn would compile the sources of an editable installation again.
    environment = {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([python, *words], env=environment, capture_output=True, check=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout, words
    run_rlplug = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * run_rlplug, 1000 * wall


def rows(python: Path, label: str, bar: float, turns: int) -> list[tuple[str, ...]]:
    """Return one table row per command."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for turn in range(turns + 1):
        for name, (words, variables) in COMMANDS.items():
            one = run_python(python, words, variables)
            if turn:  # the first writes byte code
                found[name].append(one)
    reference = found[next(iter(COMMANDS))]
    lines = []
    for name, times in found.items():
        ratios = [
            statistics.median(
                mine[kind] / its[kind] for mine, its in zip(times, reference, strict=True)
            )
            for kind in (0, 1)
        ]
        cpu, wall = (statistics.median(one[kind] for one in times) for kind in (0, 1))
        compared = times is not reference
        verdict = f"≤ {bar} {'✓' if max(ratios) <= bar else '✗'}" if compared else ""
        shown = [f"{ratio:.2f}" if compared else "" for ratio in ratios]
        lines.append((label, name, f"{cpu:.0f}", f"{wall:.0f}", *shown, verdict))
    return lines


def registry(path: Path) -> None:
    """Write a registry of many plugins, each with a result of `rlplug check`."""
    known = {"group": "algorithms", "version": "0.3.0", "contract": 2}
    check = {
        **known,
        "core": "0.1.0",
        "python": "3.12.1",
        "date": "2026-11-29",
        "command": "rlplug check thing",
        "counts": {"passed": 31, "skipped": 14},
    }
    listed = [
        {
            **known,
            "id": name,
            "distribution": f"rlplug-{name}",
            "summary": "Values.",
            "checks": [{**check, "id": name}],
        }
        for name in (f"thing-{number}" for number in range(PLUGINS))
    ]
    path.write_text(json.dumps({"format": 1, "plugins": listed}), encoding="utf-8")


def sharing_rows(folder: Path, turns: int) -> list[tuple[str, ...]]:
    """Return a row for a search and for getting and playing an agent of PPO, without the download."""
    registry(folder / "many.json")
    run = folder / "runs" / "one"
    agent = folder / "agent"
    words = ["run", "ppo", "CartPole-v1", *TRAINED, "--out", str(run.parent), "--name", run.name]
    for given in (words, ["push", str(run), str(agent)]):
        run_rlplug(given)
    found: dict[str, list[tuple[float, float]]] = {"search": [], "pull": [], "play": []}
    for turn in range(turns + 1):
        copy = folder / f"copy{turn}"
        search = ["search", "thing-7", "--registry", str(folder / "many.json")]
        pull = ["pull", str(agent), "--out", str(copy)]
        play = ["play", str(copy), "--video", str(folder / f"film{turn}.mp4")]
        for words in (search, pull, play):
            one = run_rlplug(words)
            if turn:  # the first writes byte code
                found[words[0]].append(one)
    by = {name: medians(times) for name, times in found.items()}
    both = [sum(pair) for pair in zip(by["pull"], by["play"], strict=True)]
    return [
        row_with_bound(f"rlplug search, {PLUGINS} plugins", by["search"], SEARCH),
        ("rlplug pull", *(f"{time:.0f}" for time in by["pull"]), ""),
        ("rlplug play, a film of 500 frames", *(f"{time:.0f}" for time in by["play"]), ""),
        row_with_bound("pull and play", both, PULL_AND_PLAY),
    ]


def run_rlplug(words: list[str]) -> tuple[float, float]:
    """Run a command of rlplug without MLflow; return milliseconds of processor time and of wall time."""
    variables = {"RLPLUG_DISABLED_PLUGINS": "mlflow"}
    return run_python(Path(sys.executable), ["-m", "rlplug_cli", *words], variables)


def medians(times: list[tuple[float, float]]) -> list[float]:
    """Return the medians of processor time and of wall time."""
    return [statistics.median(one[kind] for one in times) for kind in (0, 1)]


def row_with_bound(title: str, times: list[float], seconds: float) -> tuple[str, ...]:
    """Return a row with a bound of the wall time."""
    verdict = "✓" if times[1] <= 1000 * seconds else "✗"
    return title, *(f"{time:.0f}" for time in times), f"≤ {1000 * seconds:.0f} {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--turns", type=int, default=11, help="number of measurements of each command"
    )
    parser.add_argument("--write", action="store_true", help="also write the table into RESULTS.md")
    arguments = parser.parse_args()
    lines: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for distributions, algorithms, bar in SIZES:
            python = environment(Path(temporary, str(distributions)), distributions, algorithms)
            lines += rows(python, f"{distributions}, {algorithms} algorithms", bar, arguments.turns)
        shared = sharing_rows(Path(temporary), arguments.turns)
    header = (
        "extra distributions",
        "command",
        "CPU, ms",
        "wall, ms",
        "ratio of CPU",
        "ratio of wall",
        "bar",
    )
    text = f"""## Response time of the command line

`python bench/startup.py`

{table(header, lines)}

Ratios are to `nox --help` in the same turn; medians of {arguments.turns} turns. The start of the interpreter is
included.

{table(("command", "CPU, ms", "wall, ms", "bar of the wall time"), shared)}

{machine()}; rlplug at {revision()}."""
    print(text)
    if arguments.write:
        write_section("startup", text)


if __name__ == "__main__":
    sys.exit(main())
