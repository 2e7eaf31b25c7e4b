"""Does each algorithm learn? Trains with the presets on classic control and writes final returns to LEARNING.md.

    python bench/learn.py                                     # every goal, seeds 1 to 5: some hours
    python bench/learn.py --only dqn/CartPole-v1 --seeds 1 2  # some of it
    python bench/learn.py --report                            # train nothing, write the tables

What each seed came to is added to learning.jsonl, from which the tables are made; of several lines the last counts.
Finished runs of the same configuration are reused, interrupted ones are resumed.
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
from rlplug_core.plugins.presets import resolve
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory, group_of
from rlplug_core.runs.journal import read

LEARNING = Path(__file__).with_name("LEARNING.md")
OUTCOMES = Path(__file__).with_name("learning.jsonl")
#: The ending of the file beside a run directory that says which commits trained it.
REVISION = "revision"
ABOUT = """# What the algorithms learn

`python bench/learn.py`: every run is `rlplug run ALGO ENV --seed N` with nothing but the presets. While it trains, the
weights are evaluated twenty times over 100 greedy episodes, and the best are kept; the final return of a seed is the
mean return of these over another 100 greedy episodes on fresh seeds. Those who learn Acrobot-v1 in 300,000 env steps
are evaluated over 20 on the way. "Judged" is one number of the five, "last" the same of the last weights, where they
were written down. "To the bar" is the env step of the first evaluation that reaches it, the median of the seeds. The
bar holds for every seed, or for what stands beside it. "Zoo" is what rl-baselines3-zoo publishes for the algorithm of
Stable-Baselines3 or sb3-contrib with tuned settings, in brackets its env steps: the last weights of one run (its
`benchmark.md`, commit 0088472b8c), robots and lander in their older versions.
Asynchronous workers (`a3c`, `nstep-q`) and decoupled actors (`impala`, `appo`, `apex`) are two processes, whose order
nothing fixes: their numbers differ a little from run to run. A dash is a seed that has not been run. Some presets turn
noisy weights off and explore by epsilon: of `rainbow` for Acrobot-v1, of `rainbow-iqn` for CartPole-v1, and those of
both for FrozenLake-v1. The rows of `a2c-noisy` are `a2c --noisy factorized --ent-coef 0`, those of `acer-async` are
`acer --runner async --workers 2`, and those of `sac-actors` are `sac --runner decoupled --actors 2`; `-inline` and
`-ray` say where two actors are: `--inline`, `--on ray`. `ppo` misses its bar on Acrobot-v1 by half a return with one
seed since its first rollout is scaled, too; the mean of the five is -75.3, and was -76.2.

{learning}

## The classic check

CartPole cut after 200 steps, a memory of 1,000 transitions, 10,000 env steps, and one test episode of the best weights:
the setting in which tutorials show DQN. The bar is 200, the most there is. One episode may be lucky: "to the bar" says
which seeds had an evaluation of 200 in the mean of 100 episodes before.

{classic}

## Pixels

A game of bricks in 10 by 10 pixels (`bench/pixels.py`); what counts is the interquartile mean over the seeds.

{pixels}

## MinAtar

Five games of Young and Tian (2019, arXiv:1903.03176), with the smallest set of actions. Its authors publish curves of
5,000,000 frames, no table. `ppo` learns with its preset, in some two minutes; `dqn` and `rainbow` make a gradient step
every four env steps, with the step sizes of the bricks above, and take some three and four minutes. Evaluations are of
10 games, the final one of 30. The rows of `rainbow` are older than the random actions with which it begins, but for its
fourth seed in Breakout, which learned nothing without them (0.4), and for Seaquest from the second seed on.

{minatar}

## Robots

MuJoCo's, evaluated over 10 episodes and at the end over 20: 100,000 env steps of `ppo`; of those who make a gradient
step for each 30,000, and 10,000 on Reacher and InvertedPendulum. Rows of `-long` are the same runs gone on with until
100,000, and the seconds of all of it. TD3's initial weights are torch's, and were orthogonal: with those one seed had
2,789 on Hopper, 1,566 on Walker2d, 550 on Ant and 67 on Swimmer.

{robots}

## Atari

Pong with the recipe of `--wrap atari`: score of a whole game, as many steps as an hour of one core makes. With sticky
actions (Machado et al., 2018) evaluations are of 10 games, the final one of 30. The rows of `-not-sticky` are as most
published curves: `--wrap atari:sticky=0 --no-anneal-lr`, here with `--net.precision bfloat16`, and evaluations of 5
games, the final one of 10. CleanRL's documentation gives 20.36 ± 0.20 for `ppo_atari.py` after 10,000,000 steps.
`a2c` loses every point for 2,400,000 steps and begins to score then; its runs had tests beside them, which takes half
of their speed.

{atari}

## Other kinds of environments

FrozenLake-v1 has numbers as observations and slips two steps in three: no policy can pass 0.75. InvertedPendulum-v5
gives 1 for each of at most 1,000 steps, Reacher-v5 is an arm. No preset names these environments; what `appo`, `impala`
and `vpg` have for continuous control was chosen by one seed of InvertedPendulum-v5, what `acktr` and `nstep-q` have for
discrete actions by one of Acrobot-v1 and FrozenLake-v1. What `a3c` and `acer-continuous` have for continuous control,
and `impala` for discrete actions, was chosen by two seeds of those rows, and so was the target of `appo`. Evaluations
are of 20 episodes. Acrobot-v1 is for those whom the first table does not show there: random actions end one episode in
a hundred, and the online `vqn` and `vsarsa`, which remember none, never learn from it. LunarLander-v3 is for these two.
The presets of `sac-discrete` for Acrobot-v1, and of those two for LunarLander-v3, were chosen by their first seeds.
With noisy weights instead of epsilon `rainbow` and `rainbow-iqn` end at 0.38 (one seed) and 0.24 on FrozenLake-v1.
`r2d2` learns the lake that does not slip within 11,000 env steps (`--env.is_slippery false --train-freq 8
--target-update-interval 50`, one seed); where it slips, neither more gradient steps nor one-step targets without
priorities did more. `apex` differs between runs of one seed on FrozenLake-v1: a second one of the fifth ended at 0.76.
Before its batches came from both actors' memories at once and beta stayed at 0.4, as in the paper, five seeds had 0.73;
its row for Acrobot-v1 is from then.

{kinds}

## From data

Every seed learns from the same data, which `sac` recorded with its best weights and its own exploration: on
Pendulum-v1 20,000 steps after 15,000 steps of training, on HalfCheetah-v5 50,000 steps after 30,000, on Reacher-v5
20,000 after 10,000. The greedy return of these weights is -148.5 (100 episodes), 2,481 (50 episodes) and -5.44 (100
episodes). The bar is 0.9 of it; of a negative return, it over 0.9; Reacher-v5 has none. Steps are updates.
The rows of `iql` are older than the bounds of its policy's deviation; on data recorded anew three seeds of Pendulum-v1
and one of Reacher-v5 come to the same evaluations with them and without. How good the data is decides more: the
weights that recorded Pendulum-v1 anew had been the best of 20 evaluations of 10 episodes, and return -169.0 in 100.
From these data `iql` ends at -155, -268, -145, -156 and -158, its last weights at -269, -281, -340, -326 and -249, and
`cql` at -331 and -238 by the best of five evaluations (two seeds). The code of the rows below does the same with them.

{offline}

## Memory

A cue in the first observation, ten that say nothing, then the question (`rlplug_core.testing.envs:LongRecall`): who
remembers gets 1, who does not 0.5 in the mean. `MiniGrid-MemoryS7-v0` shows an object in the first room and two
behind it; who goes to the same one gets some 0.96, who goes to the other gets nothing. Evaluations there are of 50
episodes. Without memory the bar is a bound from above: no one else may pass.

{memory}

## Other families

What a preset reaches where someone else wrote the environment. `sac` on FetchReach-v4 learns with hindsight, and its
numbers are the share of episodes that end at their goal.

{families}

## Many agents

`simple_spread_v3` of mpe2: three agents that work together; random actions give -27.0 to each, and the bar is 30 %
above. In `simple_reference_v3` two agents tell each other where to go, and random actions give -28.9; in
`simple_speaker_listener_v4` one tells, the other goes, and they give -42.9. `independent` has weights for each agent.
In `multiwalker_v9` three walkers carry a beam, and random actions give -102.0 to each: they fall, which costs 100.
Connect four, tic-tac-toe and Leduc hold'em against an opponent who chooses at random, half of the games moving first: 0
is a draw, and in connect four 0.8 is 90 % won; hold'em is counted in chips. Steps are steps of single agents.

{agents}

Seconds are of a whole run with its evaluations, the median of the seeds, beside other work, on machines like this one:
{machine}. The last column says which commits trained the seeds
(`learning.jsonl` has it for each).
"""


@dataclass(frozen=True)
class Outcome:
    """What one seed of a goal came to, with its best weights and its last ones.

    `curve` is the env step and the mean return of each evaluation on the way. Of a goal with `success` all of these
    are shares of successes.
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
        "--out", type=Path, default=ROOT / "runs" / "learn", help="where the run directories are"
    )
    parser.add_argument("--report", action="store_true", help="train nothing")
    given = parser.parse_args(arguments)
    for goal in installed():
        for seed in given.seeds if goal.name in given.only and not given.report else ():
            outcome = outcome_of(goal, seed, run_of(goal, seed, given.out))
            with OUTCOMES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(
                f"{goal.name} seed {seed}: {number(goal, outcome.final_return)} in {outcome.seconds:.0f} s",
                flush=True,
            )
    write(outcomes())


def installed() -> list[Goal]:
    """The goals of the algorithms that are there."""
    names = {
        record.id for record in records() if record.group == "algorithms" and record.status == "ok"
    }
    return [goal for goal in GOALS if goal.algorithm in names]


def options_of(goal: Goal, seed: int) -> tuple[dict[str, Any], Path]:
    """The options that the presets give, and the name of the run directory: one per configuration and seed."""
    judging = {"eval_episodes": 100, "final_eval_episodes": 100}  # whatever they cost
    values, _ = resolve(goal.algorithm, goal.env, {"seed": seed, **judging, **dict(goal.options)})
    plan = Plan.make(goal.algorithm, goal.env, values)
    assert plan.options.total_timesteps == goal.steps, (
        f"the preset of {goal.name} says {plan.options.total_timesteps} steps"
    )
    group = group_of(goal.algorithm, goal.env, plan.flat)
    return values, Path(f"{goal.name.replace('/', '-')}-{group}-s{seed}")


def run_of(goal: Goal, seed: int, out: Path) -> Run:
    """The finished run, which may mean training it."""
    values, name = options_of(goal, seed)
    if goal.goes_on:
        return longer(goal, seed, out, name)
    if goal.part == "offline":
        values |= {"offline": True, "dataset": str(data_of(goal.env, out))}
    if not (out / name).exists():
        by = beside(out / name)
        by.parent.mkdir(parents=True, exist_ok=True)
        by.write_text(revision(), encoding="utf-8")  # before it trains, which may be interrupted
        return train(goal.algorithm, goal.env, values, out=out, name=str(name), hooks=False)
    run = Run(RunDirectory.open(out / name))
    return run if run.status == "finished" else resume(run, hooks=False)


def longer(goal: Goal, seed: int, out: Path, name: Path) -> Run:
    """The run of the shorter goal, copied and gone on with."""
    if not (out / name).exists():
        (shorter,) = (one for one in GOALS if one.called == goal.algorithm and one.env == goal.env)
        before = run_of(shorter, seed, out)
        copy = out / f"{name}.copy"
        shutil.copytree(before.path, copy, dirs_exist_ok=True)
        by = ", ".join(dict.fromkeys([trained_by(before), revision()]))
        beside(out / name).write_text(by, encoding="utf-8")
        copy.rename(out / name)
    run = Run(RunDirectory.open(out / name))
    finished = run.status == "finished" and run.summary().steps >= goal.steps
    return run if finished else resume(run, total_timesteps=goal.steps, hooks=False)


def data_of(env: str, out: Path) -> Path:
    """The data set of an environment, recorded once."""
    path = out / f"sac-{env}.npz"
    if not path.exists():
        values, _ = resolve("sac", env, RECORDERS[env])
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
        revision=trained_by(run),
        last=round(final[f"last_{what}"], 3),
        curve=curve,
    )


def trained_by(run: Run) -> str:
    """The commits that trained a run."""
    by = beside(run.path)
    return by.read_text(encoding="utf-8") if by.exists() else "unknown"


def beside(run: Path) -> Path:
    """The file that says which commits trained a run."""
    return run.with_name(f"{run.name}.{REVISION}")


def outcomes() -> dict[str, dict[int, Outcome]]:
    """For every goal what its seeds came to."""
    found: dict[str, dict[int, Outcome]] = {}
    for line in OUTCOMES.read_text(encoding="utf-8").splitlines() if OUTCOMES.exists() else ():
        outcome = Outcome(**json.loads(line))
        found.setdefault(outcome.goal, {})[outcome.seed] = outcome
    return found


def write(found: dict[str, dict[int, Outcome]]) -> None:
    """LEARNING.md from what is known."""
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
        "judged",
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
    LEARNING.write_text(ABOUT.format(**parts, machine=machine()), encoding="utf-8")


def row(goal: Goal, found: dict[int, Outcome]) -> list[str]:
    finals = [number(goal, found[seed].final_return) if seed in found else "-" for seed in SEEDS]
    judged = judge(goal, [outcome.final_return for outcome in found.values()])
    lasts = [outcome.last for outcome in found.values() if outcome.last is not None]
    last = number(goal, judge(goal, lasts)) if len(lasts) == len(found) else "-"
    steps = [outcome.reached for outcome in found.values() if outcome.reached is not None]
    reached = (
        f"{statistics.median(steps):,.0f}"
        if len(steps) == len(found)
        else f"{len(steps)} of {len(found)}"
    )
    seconds = statistics.median(outcome.seconds for outcome in found.values())
    beside = "" if goal.judge == "every seed" else f" ({goal.judge})"
    what = [f"`{goal.called}`", goal.env.rpartition(":")[2], f"{goal.steps:,}"]
    commits = sorted({outcome.revision for outcome in found.values()})
    by = ", ".join(commits) if len(commits) < 3 else "several"
    aim = ["-", "-", "-"]
    if goal.bar is not None:
        missed = judged > goal.bar if goal.at_most else judged < goal.bar
        passed = "no" if missed else "yes" if len(found) == len(SEEDS) else "so far"
        aim = (
            [f"≤ {goal.bar:g}", passed, "-"] if goal.at_most else [f"{goal.bar:g}", passed, reached]
        )
    zoo = PUBLISHED.get(goal.algorithm, {}).get(goal.env, "")
    return [
        *what,
        *finals,
        f"{number(goal, judged)}{beside}",
        last,
        zoo,
        *aim,
        f"{seconds:.0f}",
        by,
    ]


def number(goal: Goal, value: float) -> str:
    """A return as the table has it: shares of right answers, of goals reached and of games won need two digits."""
    small = goal.env.startswith("FrozenLake") or goal.algorithm == "self-play"
    share = goal.part == "memory" or abs(goal.bar or 100) < 1 or small
    return f"{value:.2f}" if share else f"{value:.1f}"


def judge(goal: Goal, finals: Sequence[float]) -> float:
    """One number of the seeds' final returns: the worst, the median, or their interquartile mean."""
    if goal.judge == "every seed":
        return max(finals) if goal.at_most else min(finals)
    if goal.judge == "median":
        return statistics.median(finals)
    return float(interquartile_mean(finals))


if __name__ == "__main__":
    main()
