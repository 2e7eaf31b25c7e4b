"""A sweep and a study that are killed again and again, and typed again each time, do what is missing and nothing twice.

python -m tests.faults.many [COMMAND…]      the table, as lines of Markdown
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rlplug_core.runs.journal import read
from tests.faults.trials import PATIENCE, differences, done

#: More or fewer of them by hand.
KILLS = int(os.environ.get("RLPLUG_KILLS", "50"))
#: Runs of a second or two, in which everything happens several times.
SHORT = ("--total-timesteps", "4000", "--checkpoint-every", "500", "--eval-every", "1000", "--eval-episodes", "2",
         "--final-eval-episodes", "2", "--jobs", "2")  # fmt: skip
TRIALS = 12
COMMANDS = {
    "sweep": ("sweep", "a2c,dqn", "CartPole-v1", "--seeds", "2", "--set", "gamma=0.9,0.99", *SHORT,
              "--set", "dqn:learning_starts=100"),
    "tune": ("tune", "a2c", "CartPole-v1", "--trials", str(TRIALS), "--learning-rate", "1e-4..1e-2:log",
             "--gamma", "0.9..0.999", *SHORT),
}  # fmt: skip
#: What is killed: the command by SIGKILL; one of its runs, while the command goes on; both at once; all by Ctrl-C.
HOW = ("command", "run", "both", "stop")


@dataclass
class Outcome:
    """What came of the kills of one command."""

    command: str
    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


def killed(command: str, place: Path, kills: int = KILLS, seed: int = 0) -> Outcome:
    """Kill a command so many times, each time typed again, and look at what its last time leaves.

    Where a directory is done before, the same begins in another.
    """
    outcome, draw, number = Outcome(command), random.Random(f"{command} {seed}"), 0
    whole = place / "runs" / "whole"
    _finish(_started(command, place, "whole"))
    while outcome.kills.total() < kills:
        number += 1
        share = _size(whole) // (kills + 2)
        directory = place / "runs" / f"killed-{number}"
        while outcome.kills.total() < kills and _once(outcome, place, directory, draw, share):
            pass
        _finish(_started(command, place, directory.name))
        outcome.runs += len(_tasks(directory))
        outcome.wrong += [f"{directory.name}: {wrong}" for wrong in LOOK[command](directory, whole)]
    return outcome


def _once(outcome: Outcome, place: Path, directory: Path, draw: random.Random, share: int) -> bool:
    """Type the command and kill; false where it came to its end before."""
    process = _started(outcome.command, place, directory.name)
    how = draw.choice(HOW)
    if not _waited(process, directory, draw.randrange(2 * share)):
        return False
    outcome.kills[how] += 1
    runs = [one for one in psutil.Process(process.pid).children(recursive=True) if not _is_guard(one)]
    if how in ("run", "both") and runs:
        draw.choice(runs).kill()
    if how == "run" and not _waited(process, directory, draw.randrange(2 * share)):
        return False
    process.send_signal(signal.SIGINT if how == "stop" else signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    return True


def _is_guard(process: psutil.Process) -> bool:
    try:
        return "rlplug_cli.mlflow.process_guard" in process.cmdline()
    except psutil.NoSuchProcess:
        return True


def _started(command: str, place: Path, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rlplug_cli", *COMMANDS[command], "--name", name]
    return subprocess.Popen(words, cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said


def _waited(process: subprocess.Popen[str], directory: Path, more: int) -> bool:
    """Wait until the journals have grown by `more` bytes; false where the command has ended."""
    until = _size(directory) + more
    while process.poll() is None:
        if _size(directory) >= until:
            return True
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return False


def _size(directory: Path) -> int:
    """The length of all journals in bytes."""
    return sum(path.stat().st_size for path in directory.glob("*/journal.jsonl"))


def _tasks(directory: Path) -> dict[str, list[str]]:
    """The words of every run that was to be, by its name."""
    tasks = json.loads((directory / "sweep.json").read_bytes())["tasks"]
    return {
        task["name"]: ["run", task["algorithm"], task["env"], *task["words"], "--seed", str(task["seed"])]
        for task in tasks
    }


def of_sweep(directory: Path, whole: Path) -> list[str]:
    """Return what is wrong with a sweep that ought to be like one that was left alone."""
    names = {path.parent.name for path in whole.glob("*/journal.jsonl")}
    found = {path.parent.name for path in directory.glob("*/journal.jsonl")}
    wrong = [f"missing {names - found}, too many {found - names}"] if names != found else []
    for name in names & found:
        wrong += [f"{name}: {one}" for one in (*_ends(directory / name), *differences(directory / name, whole / name))]
    return wrong


def of_study(directory: Path, whole: Path) -> list[str]:
    """Return what is wrong with a study: trials that are stuck, doubled or lost, and runs that are not what they say.

    What is drawn after a restart is another trial than in a study that was left alone; so each whole run is compared
    with the same command, left alone.
    """
    import optuna

    trials = optuna.load_study(study_name=directory.name, storage=f"sqlite:///{directory / 'study.db'}").get_trials()
    states = Counter(one.state.name for one in trials)
    wrong = [] if states.keys() <= {"COMPLETE", "PRUNED"} and len(trials) == TRIALS else [f"trials: {dict(states)}"]
    if len({tuple(one.params.values()) for one in trials}) != len(trials):
        wrong.append("the same options twice")
    tasks = _tasks(directory)
    if sorted(tasks) != sorted(path.parent.name for path in directory.glob("*/journal.jsonl")):
        wrong.append("other runs than trials")
    for (name, words), trial in zip(tasks.items(), trials, strict=True):
        if trial.state.name == "COMPLETE":
            done([*words, "--name", name, "--out", str(whole.parent / f"{directory.name}-alone")], whole.parent)
            alone = whole.parent / f"{directory.name}-alone" / name
            wrong += [f"{name}: {one}" for one in (*_ends(directory / name), *differences(directory / name, alone))]
            wrong += _told(trial, directory / name)
    return wrong


def _told(trial: object, run: Path) -> list[str]:
    """Return what is wrong with what the study knows of a run."""
    (judged,) = read(run / "journal.jsonl", kinds=("final_eval",))
    options = json.loads((run / "config.json").read_bytes())["options"]
    same = all(options[name] == value for name, value in trial.params.items())  # type: ignore[attr-defined]
    value = judged.data["last_return_mean"]
    return [] if same and trial.value == value else [f"{run.name}: told {trial}"]  # type: ignore[attr-defined]


def _ends(run: Path) -> list[str]:
    """Return what is wrong with how often a run's journal says that it finished."""
    ends = [one.data["status"] for one in read(run / "journal.jsonl", kinds=("end",))]
    return [] if ends.count("finished") == 1 else [f"ends {ends}"]


LOOK: dict[str, Callable[[Path, Path], list[str]]] = {"sweep": of_sweep, "tune": of_study}


def row(outcome: Outcome) -> str:
    """A line of the table."""
    kills = " | ".join(str(outcome.kills[how]) for how in HOW)
    return f"| `{outcome.command}` | {kills} | {outcome.runs} | {'; '.join(outcome.wrong) or 'none'} |"


def table(commands: Sequence[str] = ()) -> list[Outcome]:
    """Every command (or those named); a line of each is printed as it comes."""
    outcomes = []
    for command in commands or COMMANDS:
        with tempfile.TemporaryDirectory() as place:
            outcomes.append(killed(command, Path(place)))
        print(row(outcomes[-1]), flush=True)  # noqa: T201 - a table of many minutes shows how far it is
    return outcomes


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    sys.exit(any(outcome.wrong for outcome in table(sys.argv[1:])))
