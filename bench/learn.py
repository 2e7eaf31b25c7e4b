"""Train every algorithm with its presets and write the final returns to LEARNING.md.

    python bench/learn.py                                     # every goal, seeds 1 to 5: many hours
    python bench/learn.py --only dqn/CartPole-v1 --seeds 1 2  # one goal
    python bench/learn.py --report                            # write the tables without training

Appends the outcome of each seed to learning.jsonl, the source of the tables; the last of several lines counts.
Finished runs of the same configuration are used again, interrupted ones are resumed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from goals import GOALS, PARTS, PUBLISHED, RECORDED, RECORDERS, SEEDS, Goal
from results import ROOT, interquartile_mean, machine, revision, table

from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import records
from rlplug_core.plugins.presets import preset
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory, group_of
from rlplug_core.runs.journal import read

LEARNING = Path(__file__).with_name("LEARNING.md")
#: The section about packages that are not installed here, written by hand.
PLUGINS = Path(__file__).parent / "notes" / "plugins-of-examples.md"
OUTCOMES = Path(__file__).with_name("learning.jsonl")
#: Suffix of the file next to a run directory that names the commits that trained it.
REVISION = "revision"
#: The first letters of environments with returns of about 1.
SMALL = ("FrozenLake", "MiniGrid", "BabyAI", "Blackjack")
ABOUT = """# Learning results of all algorithms

`python bench/learn.py`: every run is `rlplug run ALGO ENV --seed N` with the preset only. During training the
weights are evaluated twenty times over 100 greedy episodes, and the best are kept. The final return of a seed is the
mean return of the best weights over another 100 greedy episodes on new seeds. Runs of 300,000 env steps on Acrobot-v1
use 20 episodes during training. The columns:

- "result": one number for the five seeds. It is the worst seed unless the cell names another aggregate;
- "last": the same number for the last weights, if it was recorded;
- "zoo": the number that rl-baselines3-zoo publishes for the algorithm of Stable-Baselines3 or sb3-contrib with tuned
  settings and, in brackets, its env steps. It is the return of the last weights of one run (`benchmark.md`, commit
  0088472b8c), with older versions of the robots and the lander;
- "bar", "pass": the result that is required, and if it was reached;
- "to the bar": the env step of the first evaluation that reaches the bar, as a median over the seeds;
- "seconds": the median of the seeds' whole runs; those of `acktr` on CartPole-v1 ran next to other work;
- a dash: a seed that was not run.

Asynchronous workers (`a3c`, `nstep-q`) and decoupled actors (`impala`, `appo`, `apex`) are two processes with no fixed
order, so their numbers differ a little from run to run. Some presets turn noisy weights off and explore with epsilon:
`rainbow` on Acrobot-v1, `rainbow-iqn` on CartPole-v1, and both on FrozenLake-v1. `a2c-noisy` is
`a2c --noisy factorized --ent-coef 0`, `acer-async` is `acer --runner async --workers 2`, and `sac-actors` is
`sac --runner decoupled --actors 2`. Two actors run with `--inline` in rows with `-inline`, and with `--on ray` in rows
with `-ray`. `ppo` misses its bar on Acrobot-v1 by 0.5 with one seed since the reward scaling covers the first rollout;
the mean of the five seeds is -75.3, before that it was -76.2.

{learning}

## The classic check

CartPole with a limit of 200 steps, a replay buffer of 1,000 transitions, 10,000 env steps, and one test episode with
the best weights: the usual setting of DQN tutorials. The bar is 200, the maximum. One episode may be lucky, so "to the
bar" counts the seeds with an earlier evaluation of 200 over 100 episodes.

{classic}

## Pixels

A game of bricks in 10 by 10 pixels (`bench/pixels.py`). The result is the interquartile mean over the seeds.

{pixels}

## MinAtar

Five games of Young and Tian (2019, arXiv:1903.03176) with the smallest set of actions. The authors publish curves over
5,000,000 frames and no table. `ppo` uses its preset and takes about two minutes. `dqn` and `rainbow` make a gradient
step every four env steps with the learning rates of the bricks above, and take about three and four minutes.
Evaluations have 10 games, the final one 30. The rows of `rainbow` are older than its initial random actions, except
the fourth seed of Breakout, which learned nothing without them (0.4), and Seaquest from the second seed on.

{minatar}

## Robots

MuJoCo environments, evaluated over 10 episodes and at the end over 20. `ppo` trains for 100,000 env steps; algorithms
with one gradient step per env step train for 30,000, and for 10,000 on Reacher and InvertedPendulum. Rows with `-long`
continue the same runs to 100,000 steps; their seconds include the first part. TD3 uses torch's initial weights. With
the former orthogonal ones one seed had 2,789 on Hopper, 1,566 on Walker2d, 550 on Ant and 67 on Swimmer.

{robots}

## Atari

Pong with the preprocessing of `--wrap atari`: score of a whole game, as many steps as one core makes in an hour. With
sticky actions (Machado et al., 2018) evaluations have 10 games, the final one 30. Rows with `-not-sticky` follow most
published curves: `--wrap atari:sticky=0 --no-anneal-lr`, in part with products in bfloat16, and evaluations of 5
games, the final one of 10. CleanRL's documentation gives 20.36 ± 0.20 for `ppo_atari.py` after 10,000,000 steps.
`a2c` loses every point for 2,400,000 steps and then starts to score; tests ran at the same time as its runs and halved
their speed.

{atari}

## Other kinds of environments

FrozenLake-v1 has numbers as observations and slips in two of three steps: no policy can exceed 0.75.
InvertedPendulum-v5 gives 1 for each of at most 1,000 steps, Reacher-v5 is an arm. These environments use the presets
of their kind. Those of `appo`, `impala` and `vpg` for continuous control were chosen with one seed of
InvertedPendulum-v5, those of `acktr` and `nstep-q` for discrete actions with one seed of Acrobot-v1 and FrozenLake-v1.
Those of `a3c` and `acer-continuous` for continuous control, of `impala` for discrete actions, and the target network
of `appo` were chosen with two seeds of these rows. Evaluations have 20 episodes. Acrobot-v1 is here for the algorithms
that the first table leaves out: random actions end one episode in a hundred, and the online algorithms `vqn` and
`vsarsa` never learn from it because they have no replay buffer. LunarLander-v3 is for these two. The presets of
`sac-discrete` for Acrobot-v1 and of those two for LunarLander-v3 were chosen with their first seeds. With noisy
weights instead of epsilon `rainbow` and `rainbow-iqn` end at 0.38 (one seed) and 0.24 on FrozenLake-v1. `r2d2` learns
the lake without slipping within 11,000 env steps (`--env.is_slippery false --train-freq 8 --target-update-interval
50`, one seed); with slipping, neither more gradient steps nor one-step targets without priorities helped. `apex`
differs between runs of one seed on FrozenLake-v1: a second run of the fifth seed ended at 0.76. Before batches came
from the buffers of both actors at once and beta stayed at 0.4, as in the paper, five seeds had 0.73; the row for
Acrobot-v1 is from that time.

{kinds}

## From data

Every seed learns from the same data, recorded with the best weights of `sac` and its own exploration: on Pendulum-v1
20,000 steps after 15,000 steps of training, on HalfCheetah-v5 50,000 steps after 30,000, on Reacher-v5 20,000 after
10,000. The greedy return of these weights is -148.5 (100 episodes), 2,481 (50 episodes) and -5.44 (100 episodes). The
bar is 0.9 times this return, or the return divided by 0.9 if it is negative; Reacher-v5 has no bar. Steps are updates.
The rows of `iql` are older than the limits of its policy's standard deviation; on newly recorded data three seeds of
Pendulum-v1 and one of Reacher-v5 reach the same evaluations with and without them. The quality of the data matters
more: the weights that recorded Pendulum-v1 again had been the best of 20 evaluations of 10 episodes, and return -169.0
in 100 episodes. From these data `iql` ends at -155, -268, -145, -156 and -158, its last weights at -269, -281, -340,
-326 and -249, and `cql` at -331 and -238 with the best of five evaluations (two seeds). The code that trained the rows
below reaches the same with them.

{offline}

## Memory

A cue in the first observation, ten observations without information, then the question
(`rlplug_core.testing.envs:LongRecall`): a policy with memory gets 1, one without gets 0.5 on average.
`MiniGrid-MemoryS7-v0` shows an object in the first room and two objects at the end of a corridor; going to the same one
gives about 0.96, the other one nothing. Evaluations there have 50 episodes. For algorithms without memory the bar is an
upper limit that no seed may exceed.

{memory}

## Other families

Results of presets on environments from other packages. `sac` uses hindsight replay on FetchReach-v4, and its
numbers are the share of episodes that reach their goal.

{families}

## On the device

Environments with rows as tensors, on a CPU. `ppo` steps 4,096 rows at a time, `pqn` 128.

{device}

## More presets

Presets with fewer seeds and often shorter runs: what to expect in many environments. Evaluations during training
have 10 episodes, the final one 100. The bar is far above random actions, and half of the highest return in most grids;
`rlplug info ENV` does not show a preset below it.

{presets}

## Many agents

`simple_spread_v3` of mpe2: three cooperating agents. Random actions give -27.0 to each, and the bar is 30 %
above. In `simple_reference_v3` two agents tell each other their targets; random actions give -28.9. In
`simple_speaker_listener_v4` one agent speaks and the other moves; random actions give -42.9. `independent` has separate
weights for each agent. In `multiwalker_v9` three walkers carry a beam; random actions give -102.0 to each, because they
fall, which costs 100. Connect four, tic-tac-toe and Leduc hold'em are played against a random opponent, moving first in
half of the games: 0 is a draw, 0.8 in connect four means 90 % won, and hold'em counts chips. Steps are steps of single
agents.

{agents}

{plugins}
Seconds are medians of whole runs with their evaluations, with other work on the same machine:
{machine}. The last column names the commits that trained the seeds
(`learning.jsonl` has the commit of each seed).
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed of a goal, with its best and its last weights.

    `curve` has the env step and the mean return of each evaluation during training. For a goal with `success` all
    returns are shares of successful episodes.
    """

    goal: str
    seed: int
    final_return: float
    reached: int | None
    seconds: float
    revision: str
    last: float | None = None
    curve: Sequence[tuple[int, float]] = ()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [goal.name for goal in GOALS]
    parser.add_argument("--only", nargs="+", metavar="ALGO/ENV", choices=names, default=names)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "learn", help="folder of the run directories"
    )
    parser.add_argument("--report", action="store_true", help="only write the tables")
    given = parser.parse_args(arguments)
    for goal in goals_of_installed_algorithms():
        for seed in given.seeds if goal.name in given.only and not given.report else ():
            outcome = outcome_of(goal, seed, run_of(goal, seed, given.out))
            with OUTCOMES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(
                f"{goal.name} seed {seed}: {number(goal, outcome.final_return)} in {outcome.seconds:.0f} s",
                flush=True,
            )
    write(outcomes())


def goals_of_installed_algorithms() -> list[Goal]:
    """Return the goals of the installed algorithms."""
    names = {
        record.id for record in records() if record.group == "algorithms" and record.status == "ok"
    }
    return [goal for goal in GOALS if goal.algorithm in names]


def options_of(goal: Goal, seed: int) -> tuple[dict[str, Any], Path]:
    """Return the options with presets and the name of the run directory, one per configuration and seed."""
    judging = {
        "eval_episodes": 100,
        "final_eval_episodes": 100,
    }  # a fixed number, so runs are comparable
    values = {**preset(goal.algorithm, goal.env), "seed": seed, **judging, **dict(goal.options)}
    plan = Plan.make(goal.algorithm, goal.env, values)
    assert plan.options.total_timesteps == goal.steps, (
        f"the preset of {goal.name} says {plan.options.total_timesteps} steps"
    )
    group = group_of(goal.algorithm, goal.env, plan.flat)
    return values, Path(f"{goal.name.replace('/', '-')}-{group}-s{seed}")


def run_of(goal: Goal, seed: int, out: Path) -> Run:
    """Return the finished run; train or resume it if necessary."""
    values, name = options_of(goal, seed)
    if goal.extends:
        return extend_run(goal, seed, out, name)
    if goal.part == "offline":
        values |= {"offline": True, "dataset": str(data_of(goal.env, out))}
    if not (out / name).exists():
        by = revision_file(out / name)
        by.parent.mkdir(parents=True, exist_ok=True)
        by.write_text(revision(), encoding="utf-8")  # before training, which may be interrupted
        return train(goal.algorithm, goal.env, values, out=out, name=str(name), hooks=False)
    run = Run(RunDirectory.open(out / name))
    return run if run.status == "finished" else resume(run, hooks=False)


def extend_run(goal: Goal, seed: int, out: Path, name: Path) -> Run:
    """Copy the run of the shorter goal and continue it."""
    if not (out / name).exists():
        (shorter,) = (
            each for each in GOALS if each.label == goal.algorithm and each.env == goal.env
        )
        before = run_of(shorter, seed, out)
        copy = out / f"{name}.copy"
        shutil.copytree(before.path, copy, dirs_exist_ok=True)
        by = ", ".join(dict.fromkeys([commits_of(before), revision()]))
        revision_file(out / name).write_text(by, encoding="utf-8")
        copy.rename(out / name)
    run = Run(RunDirectory.open(out / name))
    finished = run.status == "finished" and run.summary().steps >= goal.steps
    return run if finished else resume(run, total_timesteps=goal.steps, hooks=False)


def data_of(env: str, out: Path) -> Path:
    """Return the data set of an environment; record it if it does not exist."""
    path = out / f"sac-{env}.npz"
    if not path.exists():
        values = {**preset("sac", env), **RECORDERS[env]}
        run = train("sac", env, values, out=out, hooks=False)
        run.record(path, RECORDED[env], num_envs=10, stochastic=True)
    return path


def outcome_of(goal: Goal, seed: int, run: Run) -> Outcome:
    records = list(read(run.journal))
    what = "success_rate" if goal.success else "return_mean"
    final = [record.data for record in records if record.kind == "final_eval"][-1]
    means = [
        (record.step, record.data[f"eval/{what}"])
        for record in records
        if record.kind == "evaluation"
    ]
    reached = next(
        (step for step, mean in means if goal.bar is not None and mean >= goal.bar), None
    )
    pauses = sum(
        after.time - before.time for before, after in pairwise(records) if after.kind == "start"
    )
    seconds = (records[-1].time - records[0].time - pauses) / 1000
    curve = [(step, round(mean, 2)) for step, mean in means]
    return Outcome(
        goal.name,
        seed,
        final_return=round(final[what], 3),
        reached=reached,
        seconds=round(seconds, 1),
        revision=commits_of(run),
        last=round(final[f"last_{what}"], 3),
        curve=curve,
    )


def commits_of(run: Run) -> str:
    """Return the commits that trained a run."""
    by = revision_file(run.path)
    return by.read_text(encoding="utf-8") if by.exists() else "unknown"


def revision_file(run: Path) -> Path:
    """Return the file that names the commits that trained a run."""
    return run.with_name(f"{run.name}.{REVISION}")


def outcomes() -> dict[str, dict[int, Outcome]]:
    """Return the outcomes of each goal by seed."""
    found: dict[str, dict[int, Outcome]] = {}
    for line in OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else ():
        outcome = Outcome(**json.loads(line))
        found.setdefault(outcome.goal, {})[outcome.seed] = outcome
    return found


def write(found: dict[str, dict[int, Outcome]]) -> None:
    """Write LEARNING.md from the known outcomes."""
    rows: dict[str, list[list[str]]] = {part: [] for part in PARTS}
    for goal in GOALS:
        if goal.name in found:
            rows[goal.part].append(row(goal, found[goal.name]))
    names = [f"seed {seed}" for seed in SEEDS]
    header = [
        "algorithm",
        "environment",
        "env steps",
        *names,
        "result",
        "last",
        "zoo",
        "bar",
        "pass",
        "to the bar",
        "seconds",
        "at",
    ]
    parts = {
        name: table(header, lines) if lines else "Nothing has been run."
        for name, lines in rows.items()
    }
    plugins = f"#{PLUGINS.read_text(encoding='utf-8')}"  # a section of this page
    text = ABOUT.format(**parts, plugins=plugins, machine=machine())
    LEARNING.write_text(text, encoding="utf-8")


def row(goal: Goal, found: dict[int, Outcome]) -> list[str]:
    finals = [number(goal, found[seed].final_return) if seed in found else "-" for seed in SEEDS]
    result = judge(goal, [outcome.final_return for outcome in found.values()])
    lasts = [outcome.last for outcome in found.values() if outcome.last is not None]
    last = number(goal, judge(goal, lasts)) if len(lasts) == len(found) else "-"
    steps = [outcome.reached for outcome in found.values() if outcome.reached is not None]
    reached = (
        f"{statistics.median(steps):,.0f}"
        if len(steps) == len(found)
        else f"{len(steps)} of {len(found)}"
    )
    seconds = statistics.median(outcome.seconds for outcome in found.values())
    aggregate = "" if goal.judge == "every seed" else f" ({goal.judge})"
    what = [f"`{goal.label}`", goal.env.rpartition(":")[2], f"{goal.steps:,}"]
    commits = sorted({outcome.revision for outcome in found.values()})
    by = ", ".join(commits) if len(commits) < 3 else "several"
    aim = ["-", "-", "-"]
    if goal.bar is not None:
        missed = result > goal.bar if goal.at_most else result < goal.bar
        passed = "yes" if len(found) == len(SEEDS) else "so far"
        passed = "no" if missed else passed
        aim = (
            [f"≤ {goal.bar:g}", passed, "-"] if goal.at_most else [f"{goal.bar:g}", passed, reached]
        )
    zoo = PUBLISHED.get(goal.algorithm, {}).get(goal.env, "")
    return [
        *what,
        *finals,
        f"{number(goal, result)}{aggregate}",
        last,
        zoo,
        *aim,
        f"{seconds:.0f}",
        by,
    ]


def number(goal: Goal, value: float) -> str:
    """Format a return for the table: shares of right answers, reached goals and won games get two digits."""
    small = goal.env.startswith(SMALL) or goal.algorithm == "self-play"
    share = goal.part == "memory" or abs(goal.bar or 100) < 1 or small
    return f"{value:.2f}" if share else f"{value:.1f}"


def judge(goal: Goal, finals: Sequence[float]) -> float:
    """Return one number for the final returns of the seeds: the worst, the median or the interquartile mean."""
    if goal.judge == "every seed":
        return max(finals) if goal.at_most else min(finals)
    if goal.judge == "median":
        return statistics.median(finals)
    return float(interquartile_mean(finals))


if __name__ == "__main__":
    main()
