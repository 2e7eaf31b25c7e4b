"""A sweep and a study that are killed and started again repeatedly run all missing runs, and none twice.

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
from tests.faults.trials import PATIENCE, differences, run_to_end

#: The number of kills of each command.
KILLS = int(os.environ.get("RLPLUG_KILLS", "50"))
#: Runs of a second or two with several checkpoints and evaluations.
SHORT = ("--total-timesteps", "4000", "--checkpoint-every", "500", "--eval-every", "1000", "--eval-episodes", "2",
         "--final-eval-episodes", "2", "--jobs", "2")  # fmt: skip
TRIALS = 12
COMMANDS = {
    "sweep": ("sweep", "a2c,dqn", "CartPole-v1", "--seeds", "2", "--set", "gamma=0.9,0.99", *SHORT,
              "--set", "dqn:learning_starts=100"),
    "tune": ("tune", "a2c", "CartPole-v1", "--trials", str(TRIALS), "--learning-rate", "1e-4..1e-2:log",
             "--gamma", "0.9..0.999", *SHORT),
}  # fmt: skip
#: The killed processes: the command by SIGKILL; one of its runs, while the command continues; both; all by Ctrl-C.
HOW = ("command", "run", "both", "stop")


@dataclass
class Outcome:
    """The results of the kills of one command."""

    command: str
    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


def kill_repeatedly(command: str, place: Path, kills: int = KILLS, seed: int = 0) -> Outcome:
    """Kill a command `kills` times, start it again after each, and check the final directory.

    If a directory is complete before the last kill, continue with another one.
    """
    outcome = Outcome(command)
    draw = random.Random(f"{command} {seed}")
    number = 0
    complete = place / "runs" / "complete"
    _finish(_start(command, place, "complete"))
    while outcome.kills.total() < kills:
        number += 1
        share = _size(complete) // (kills + 2)
        directory = place / "runs" / f"killed-{number}"
        while outcome.kills.total() < kills and _kill_once(outcome, place, directory, draw, share):
            pass
        _finish(_start(command, place, directory.name))
        outcome.runs += len(_tasks(directory))
        outcome.wrong += [f"{directory.name}: {wrong}" for wrong in CHECKS[command](directory, complete)]
    return outcome


def _kill_once(outcome: Outcome, place: Path, directory: Path, draw: random.Random, share: int) -> bool:
    """Start the command and kill it; return False if it ended before."""
    process = _start(outcome.command, place, directory.name)
    how = draw.choice(HOW)
    if not _wait_for_growth(process, directory, draw.randrange(2 * share)):
        return False
    outcome.kills[how] += 1
    runs = [child for child in psutil.Process(process.pid).children(recursive=True) if not _is_guard(child)]
    if how in ("run", "both") and runs:
        draw.choice(runs).kill()
    if how == "run" and not _wait_for_growth(process, directory, draw.randrange(2 * share)):
        return False
    process.send_signal(signal.SIGINT if how == "stop" else signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    return True


def _is_guard(process: psutil.Process) -> bool:
    try:
        return "rlplug_cli.mlflow.process_guard" in process.cmdline()
    except psutil.NoSuchProcess:
        return True


def _start(command: str, place: Path, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rlplug_cli", *COMMANDS[command], "--name", name]
    return subprocess.Popen(words, cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output


def _wait_for_growth(process: subprocess.Popen[str], directory: Path, more: int) -> bool:
    """Wait until the journals have grown by `more` bytes; return False if the command ends before."""
    until = _size(directory) + more
    while process.poll() is None:
        if _size(directory) >= until:
            return True
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return False


def _size(directory: Path) -> int:
    """The size of all journals in bytes."""
    return sum(path.stat().st_size for path in directory.glob("*/journal.jsonl"))


def _tasks(directory: Path) -> dict[str, list[str]]:
    """The command of every planned run by its name."""
    tasks = json.loads((directory / "sweep.json").read_bytes())["tasks"]
    return {
        task["name"]: ["run", task["algorithm"], task["env"], *task["words"], "--seed", str(task["seed"])]
        for task in tasks
    }


def sweep_errors(directory: Path, complete: Path) -> list[str]:
    """Return the differences between a sweep and an uninterrupted one."""
    names = {path.parent.name for path in complete.glob("*/journal.jsonl")}
    found = {path.parent.name for path in directory.glob("*/journal.jsonl")}
    wrong = [f"missing {names - found}, too many {found - names}"] if names != found else []
    for name in names & found:
        errors = (*_end_errors(directory / name), *differences(directory / name, complete / name))
        wrong += [f"{name}: {error}" for error in errors]
    return wrong


def study_errors(directory: Path, complete: Path) -> list[str]:
    """Return the errors of a study: trials that are stuck, repeated or missing, and runs that differ from their trial.

    After a restart other trials are drawn than in an uninterrupted study, so each complete run is compared with an
    uninterrupted run of the same command.
    """
    import optuna

    trials = optuna.load_study(study_name=directory.name, storage=f"sqlite:///{directory / 'study.db'}").get_trials()
    states = Counter(trial.state.name for trial in trials)
    wrong = [] if states.keys() <= {"COMPLETE", "PRUNED"} and len(trials) == TRIALS else [f"trials: {dict(states)}"]
    if len({tuple(trial.params.values()) for trial in trials}) != len(trials):
        wrong.append("the same options twice")
    tasks = _tasks(directory)
    if sorted(tasks) != sorted(path.parent.name for path in directory.glob("*/journal.jsonl")):
        wrong.append("other runs than trials")
    for (name, words), trial in zip(tasks.items(), trials, strict=True):
        if trial.state.name == "COMPLETE":
            run_to_end(
                [*words, "--name", name, "--out", str(complete.parent / f"{directory.name}-uninterrupted")],
                complete.parent,
            )
            expected = complete.parent / f"{directory.name}-uninterrupted" / name
            wrong += [f"{name}: {error}" for error in differences(directory / name, expected)]
            wrong += [*_end_errors(directory / name), *_trial_errors(trial, directory / name)]
    return wrong


def _trial_errors(trial: object, run: Path) -> list[str]:
    """Return the difference between a trial of the study and its run."""
    (final,) = read(run / "journal.jsonl", kinds=("final_eval",))
    options = json.loads((run / "config.json").read_bytes())["options"]
    matches = all(options[name] == value for name, value in trial.params.items())  # type: ignore[attr-defined]
    value = final.data["last_return_mean"]
    return [] if matches and trial.value == value else [f"{run.name}: the study has {trial}"]  # type: ignore[attr-defined]


def _end_errors(run: Path) -> list[str]:
    """Return an error if a run's journal does not have exactly one end."""
    ends = [record.data["status"] for record in read(run / "journal.jsonl", kinds=("end",))]
    return [] if ends.count("finished") == 1 else [f"ends {ends}"]


CHECKS: dict[str, Callable[[Path, Path], list[str]]] = {"sweep": sweep_errors, "tune": study_errors}


def row(outcome: Outcome) -> str:
    """A row of the table."""
    kills = " | ".join(str(outcome.kills[how]) for how in HOW)
    return f"| `{outcome.command}` | {kills} | {outcome.runs} | {'; '.join(outcome.wrong) or 'none'} |"


def table(commands: Sequence[str] = ()) -> list[Outcome]:
    """Test every command (or those named), and print a row after each."""
    outcomes = []
    for command in commands or COMMANDS:
        with tempfile.TemporaryDirectory() as place:
            outcomes.append(kill_repeatedly(command, Path(place)))
        print(row(outcomes[-1]), flush=True)  # noqa: T201 - shows the progress of a table that takes minutes
    return outcomes


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    sys.exit(any(outcome.wrong for outcome in table(sys.argv[1:])))
