"""For every algorithm, a run that is killed ten times at random moments ends like an uninterrupted one.

python -m tests.faults.kills [ALGORITHM…]      the table, as lines of Markdown
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlplug_cli.commands.run import options_of
from rlplug_core import plugins
from rlplug_core.plugins import index
from rlplug_core.plugins.names import usable
from tests.faults.trials import differences, is_finished, run_to_end, start, wait

#: The number of kills of each run.
KILLS = int(os.environ.get("RLPLUG_KILLS", "10"))
#: A run of a second with several checkpoints and evaluations; options that an algorithm does not have are left out.
RUN = {
    "total_timesteps": 400, "num_envs": 2, "eval_every": 100, "eval_episodes": 3, "final_eval_episodes": 5,
    "log_every": 20, "checkpoint_every": 60,
}  # fmt: skip
EXTRA = {
    "learning_starts": 60, "batch_size": 16, "n_steps": 8, "n_epochs": 2, "buffer_size": 1000,
    "sequence_length": 6, "burn_in": 2, "n_action_samples": 2,
}  # fmt: skip
#: The agent of multi-agent algorithms that need one.
PLAYER = "ppo:n_steps=8,batch_size=16,n_epochs=2"
#: The environments of multi-agent algorithms, with exact states, and the arguments that they need.
WORLDS: dict[str, tuple[str, ...]] = {
    "independent": ("pettingzoo/mpe2.simple_spread", "--agent", f"*={PLAYER}"),
    "mappo": ("pettingzoo/mpe2.simple_spread",),
    "self-play": ("pettingzoo/classic.connect_four", "--player", PLAYER),
}
#: The forms of a run by name: the runner and the arguments that select it.
FORMS = {
    "sync": ("sync", ("--runner", "sync")),
    "inline": ("async", ("--runner", "async", "--inline", "--workers", "2")),
    "decoupled": ("decoupled", ("--runner", "decoupled", "--inline", "--actors", "2")),
}


@dataclass
class Outcome:
    """The results of the kills of one algorithm in one form."""

    algorithm: str
    form: str
    kills: int = 0
    wrong: list[str] = field(default_factory=list)


def forms(algorithm: str) -> list[str]:
    """The forms with a runner of the algorithm; all of them run in one process, and are exact."""
    found, _ = index.read(usable("algorithms", algorithm))
    runners = [] if found is None else found.runners
    return [form for form, (runner, _) in FORMS.items() if runner in runners]


def words(algorithm: str, form: str) -> list[str]:
    """The command line of a run, without its name."""
    found, _ = index.read(usable("algorithms", algorithm))
    actions = [] if found is None else found.actions
    env = WORLDS.get(algorithm) or ("CartPole-v1" if "Discrete" in actions else "Pendulum-v1",)
    defaults = {option.name: option.default for option in options_of("algorithms", algorithm)}
    available = set(defaults)
    if defaults.get("memory", "always") is None:
        available -= {"sequence_length", "burn_in"}  # raises an error without a memory
    values = RUN | {name: value for name, value in EXTRA.items() if name in available}
    options = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    options += ["--log", "csv"]
    return ["run", algorithm, *env, *options, *FORMS[form][1]]


def kill_repeatedly(algorithm: str, form: str, place: Path, kills: int = KILLS, seed: int = 0) -> Outcome:
    """Compare an uninterrupted run with one that is killed and resumed `kills` times."""
    outcome = Outcome(algorithm, form)
    draw = random.Random(f"{algorithm} {form} {seed}")
    command = words(algorithm, form)
    run_to_end([*command, "--name", "complete"], place)
    complete, run = place / "runs" / "complete", place / "runs" / "killed"
    share = journal_size(complete) // (kills + 1)
    process = start([*command, "--name", "killed"], place)
    while outcome.kills < kills:
        until = journal_size(run) + draw.randrange(2 * share)
        while process.is_alive() and journal_size(run) <= until:
            process.join(0.0005)
        process.join(draw.random() * 0.02)  # so that kills between two records also happen
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        if wait(process) >= 0:
            break
        outcome.kills += 1
        if is_finished(run):
            break
        again = ["resume", "killed"] if (run / "config.json").exists() else [*command, "--name", "killed"]
        process = start(again, place)
    code = wait(process)
    outcome.wrong = (
        differences(run, complete) if is_finished(run) else [(place / "output.txt").read_text()[-300:], str(code)]
    )
    return outcome


def row(outcome: Outcome) -> str:
    """A row of the table."""
    return f"| {outcome.algorithm} | {outcome.form} | {outcome.kills} | {'; '.join(outcome.wrong) or 'none'} |"


def journal_size(run: Path) -> int:
    """Return the length of the journal in bytes."""
    path = run / "journal.jsonl"
    return path.stat().st_size if path.exists() else 0


def table(names: Sequence[str] = ()) -> list[Outcome]:
    """Test every algorithm (or those named) in each of its forms, and print a row after each."""
    outcomes = []
    for algorithm in names or plugins.ids("algorithms"):
        for form in forms(algorithm):
            with tempfile.TemporaryDirectory() as place:
                outcomes.append(kill_repeatedly(algorithm, form, Path(place)))
            print(row(outcomes[-1]), flush=True)  # noqa: T201 - shows the progress of a table that takes minutes
    return outcomes


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    sys.exit(any(outcome.wrong for outcome in table(sys.argv[1:])))
