"""A run that is killed ten times at random moments ends like one that was left alone: for every algorithm.

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
from tests.faults.trials import differences, done, ended, is_over, started

#: More or fewer of them by hand.
KILLS = int(os.environ.get("RLPLUG_KILLS", "10"))
#: A run of a second, in which everything happens several times; options that an algorithm has not got are left out.
RUN = {
    "total_timesteps": 400, "num_envs": 2, "eval_every": 100, "eval_episodes": 3, "final_eval_episodes": 5,
    "log_every": 20, "checkpoint_every": 60,
}  # fmt: skip
OWN = {
    "learning_starts": 60, "batch_size": 16, "n_steps": 8, "n_epochs": 2, "buffer_size": 1000,
    "sequence_length": 6, "burn_in": 2, "n_action_samples": 2,
}  # fmt: skip
#: Who plays in worlds of many agents, where the algorithm asks for it.
PLAYER = "ppo:n_steps=8,batch_size=16,n_epochs=2"
#: The environments of algorithms of many agents, whose states are exact, and the words that they need besides.
WORLDS: dict[str, tuple[str, ...]] = {
    "independent": ("pettingzoo/mpe2.simple_spread", "--agent", f"*={PLAYER}"),
    "mappo": ("pettingzoo/mpe2.simple_spread",),
    "self-play": ("pettingzoo/classic.connect_four", "--player", PLAYER),
}
#: What the forms of a run are called, its runner, and the words that ask for it.
FORMS = {
    "sync": ("sync", ("--runner", "sync")),
    "inline": ("async", ("--runner", "async", "--inline", "--workers", "2")),
    "decoupled": ("decoupled", ("--runner", "decoupled", "--inline", "--actors", "2")),
}


@dataclass
class Outcome:
    """What came of the kills of one algorithm in one form."""

    algorithm: str
    form: str
    kills: int = 0
    wrong: list[str] = field(default_factory=list)


def forms(algorithm: str) -> list[str]:
    """The forms whose runners the algorithm is sound under; all of them are in one process, and exact."""
    found, _ = index.read(usable("algorithms", algorithm))
    runners = [] if found is None else found.runners
    return [form for form, (runner, _) in FORMS.items() if runner in runners]


def words(algorithm: str, form: str) -> list[str]:
    """The command line of a run, but for its name."""
    found, _ = index.read(usable("algorithms", algorithm))
    actions = [] if found is None else found.actions
    env = WORLDS.get(algorithm) or ("CartPole-v1" if "Discrete" in actions else "Pendulum-v1",)
    defaults = {option.name: option.default for option in options_of("algorithms", algorithm)}
    own = set(defaults)
    if defaults.get("memory", "always") is None:
        own -= {"sequence_length", "burn_in"}  # refused without a memory
    values = RUN | {name: value for name, value in OWN.items() if name in own}
    options = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    options += ["--log", "csv"]
    return ["run", algorithm, *env, *options, *FORMS[form][1]]


def killed(algorithm: str, form: str, place: Path, kills: int = KILLS, seed: int = 0) -> Outcome:
    """Train a run to its end, and one that is killed and resumed `kills` times; compare the two."""
    outcome, draw = Outcome(algorithm, form), random.Random(f"{algorithm} {form} {seed}")
    command = words(algorithm, form)
    done([*command, "--name", "whole"], place)
    whole, run = place / "runs" / "whole", place / "runs" / "killed"
    share = _size(whole) // (kills + 1)
    process = started([*command, "--name", "killed"], place)
    while outcome.kills < kills:
        until = _size(run) + draw.randrange(2 * share)
        while process.is_alive() and _size(run) <= until:
            process.join(0.0005)
        process.join(draw.random() * 0.02)  # so that it hits what lies between two records, too
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        if ended(process) >= 0:
            break
        outcome.kills += 1
        if is_over(run):
            break
        again = ["resume", "killed"] if (run / "config.json").exists() else [*command, "--name", "killed"]
        process = started(again, place)
    code = ended(process)
    outcome.wrong = differences(run, whole) if is_over(run) else [(place / "said.txt").read_text()[-300:], str(code)]
    return outcome


def row(outcome: Outcome) -> str:
    """A line of the table."""
    return f"| {outcome.algorithm} | {outcome.form} | {outcome.kills} | {'; '.join(outcome.wrong) or 'none'} |"


def _size(run: Path) -> int:
    """The length of the journal in bytes."""
    path = run / "journal.jsonl"
    return path.stat().st_size if path.exists() else 0


def table(names: Sequence[str] = ()) -> list[Outcome]:
    """Every algorithm (or those named) in each of its forms; a line of each is printed as it comes."""
    outcomes = []
    for algorithm in names or plugins.ids("algorithms"):
        for form in forms(algorithm):
            with tempfile.TemporaryDirectory() as place:
                outcomes.append(killed(algorithm, form, Path(place)))
            print(row(outcomes[-1]), flush=True)  # noqa: T201 - a table of many minutes shows how far it is
    return outcomes


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    sys.exit(any(outcome.wrong for outcome in table(sys.argv[1:])))
