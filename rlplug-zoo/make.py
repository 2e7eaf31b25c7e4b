"""Train the agents of this package with the presets, one after the other, and write them into it.

    python rlplug-zoo/make.py                     # all that are missing
    python rlplug-zoo/make.py --table             # the table of the README only
    python rlplug-zoo/make.py --from runs/learn   # those that bench/learn.py has trained

Each agent is `rlplug run ALGO ENV --seed 1` with the preset and the number of env steps below, or the first seed of a
row of "More presets" in bench/LEARNING.md. An agent below the return that it must have in its final evaluation is not
written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlplug_core import train
from rlplug_core.runs import Run, push
from rlplug_core.runs.directory import RunDirectory

HERE = Path(__file__).parent
AGENTS = HERE / "src" / "rlplug_zoo" / "agents"
RUNS = HERE / "runs"
TITLE = "| agent | mean return, 100 episodes | env steps | command |\n|---|---|---|---|\n"


class Wanted(NamedTuple):
    """An agent: its algorithm and environment, its env steps, and the least return of its final evaluation."""

    algorithm: str
    env: str
    steps: int
    least: float


#: The cheapest ones first.
WANTED = (
    *(Wanted(name, "CartPole-v1", 50_000, 475) for name in ("ppo", "a2c", "trpo", "acktr")),
    Wanted("acer", "CartPole-v1", 100_000, 475),
    Wanted("vpg", "CartPole-v1", 100_000, 475),
    Wanted("vac", "CartPole-v1", 150_000, 400),
    Wanted("vsarsa", "CartPole-v1", 150_000, 400),
    Wanted("vqn", "CartPole-v1", 200_000, 400),
    *(Wanted(name, "Pendulum-v1", 10_000, -200) for name in ("ddpg", "td3", "sac", "tqc")),
    *(Wanted(name, "CartPole-v1", 100_000, 475) for name in ("impala", "appo", "a3c")),
    *(Wanted(name, "Acrobot-v1", 100_000, -100) for name in ("a2c", "acktr", "trpo")),
    *(Wanted(name, "CartPole-v0", 50_000, 190) for name in ("a2c", "acktr", "ppo", "trpo")),
    *(Wanted(name, "FrozenLake-v1", 60_000, 0.6) for name in ("a2c", "acktr", "ppo", "acer")),
    *(Wanted(name, "Acrobot-v1", 100_000, -100) for name in ("vpg", "impala", "appo", "acer")),
    Wanted("nstep-dqn", "CartPole-v1", 20_000, 475),
    Wanted("ppo", "Pendulum-v1", 100_000, -200),
    Wanted("nstep-q", "CartPole-v1", 200_000, 475),
    Wanted("ppo", "Acrobot-v1", 150_000, -100),
    *(
        Wanted(name, "CartPole-v1", 30_000, 475)
        for name in ("dqn", "per-dqn", "c51", "rainbow-iqn", "qrdqn")
    ),
    Wanted("crossq", "Pendulum-v1", 10_000, -200),
    Wanted("pqn", "CartPole-v1", 200_000, 475),
    *(
        Wanted(name, "CartPole-v1", 40_000, 475)
        for name in ("ddqn", "dueling-dqn", "noisy-dqn", "iqn", "rainbow")
    ),
    *(Wanted(name, "Acrobot-v1", 40_000, -100) for name in ("dqn", "qrdqn", "c51")),
    Wanted("sac-discrete", "CartPole-v1", 60_000, 475),
    Wanted("ppo-recurrent", "CartPole-v1", 60_000, 400),
    *(Wanted(name, "tensor/CartPole-v1", 200_000, 475) for name in ("ppo", "pqn", "a2c")),
    Wanted("dqn", "MountainCar-v0", 120_000, -140),
)
#: Runners of two processes would give other bits each time.
INLINE = {"impala": {"inline": True}, "appo": {"inline": True}}
INLINE |= {"nstep-q": {"inline": True}, "a3c": {"inline": True}}


def main() -> None:
    """Train what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument(
        "--from", type=Path, dest="runs", metavar="FOLDER", help="take the runs of bench/learn.py"
    )
    given = parser.parse_args()
    if given.runs:
        for name, run, least in learned(given.runs):
            keep(name, run, least)
    elif not given.table:
        for wanted in WANTED:
            make(wanted)
    write_table()


def learned(runs: Path) -> Iterator[tuple[str, Run, float]]:
    """Return the finished first seeds of the presets' goals, each with the return that it must have."""
    sys.path.insert(0, str(HERE.parent / "bench"))
    from goals import GOALS
    from learn import options_of

    for goal in GOALS:
        place = runs / options_of(goal, 1)[1] if goal.part == "presets" else None
        if place and place.exists():
            run = Run(RunDirectory.open(place))
            if run.status == "finished":
                yield f"{goal.algorithm}/{goal.env}", run, goal.bar or 0.0


def make(wanted: Wanted) -> None:
    """Train an agent and write its files, unless they are there."""
    place = AGENTS / wanted.algorithm / wanted.env
    if place.exists():
        return
    name = f"{wanted.algorithm}-{wanted.env.replace('/', '-')}"
    shutil.rmtree(RUNS / name, ignore_errors=True)
    options = {"total_timesteps": wanted.steps, **INLINE.get(wanted.algorithm, {})}
    run = train(wanted.algorithm, wanted.env, options, out=RUNS, name=name, hooks=False)
    keep(f"{wanted.algorithm}/{wanted.env}", run, wanted.least)


def keep(name: str, run: Run, least: float) -> None:
    """Write the files of an agent, unless they are there or its return is too low."""
    result = (run.summary().final_eval or {})["return_mean"]
    sys.stdout.write(f"{name}: {result:.4g}\n")
    sys.stdout.flush()
    if result >= least and not (AGENTS / name).exists():
        push(run, str(AGENTS / name))
        write_table()


def write_table() -> None:
    """Write the table of all agents into the README."""
    readme = HERE / "README.md"
    before = readme.read_text(encoding="utf-8").partition(TITLE)[0]
    lines = []
    for path in sorted(AGENTS.rglob("agent.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        records = (path.parent / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        (final,) = (record for record in map(json.loads, records) if record["kind"] == "final_eval")
        name = path.parent.relative_to(AGENTS).as_posix()
        score = f"{final['data']['return_mean']:.4g} ± {final['data']['return_std']:.3g}"
        lines.append(f"| `zoo:{name}` | {score} | {final['step']:,} | `{about['reproduce']}` |\n")
    readme.write_text(f"{before}{TITLE}{''.join(lines)}", encoding="utf-8")


if __name__ == "__main__":
    main()
