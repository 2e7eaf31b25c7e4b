"""How many env steps a second come out of a vector of environments, rlplug's beside Gymnasium's and EnvPool's.

    python bench/vector.py --write
    python bench/vector.py CartPole-v1 Acrobot-v1 --num-envs 1 8

All sides take turns, so that a slow minute of the machine hits all of them. Columns of EnvPool are there where the
extra `rlplug-envs[envpool]` is.
"""

# ruff: noqa: E402  # threads are set before numpy is imported
from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # as the command line has it

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation
from results import machine, revision, table, write_section
from slow import Busy

from rlplug_core.loop.build import training_env
from rlplug_core.loop.env_timing import settled
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import sample
from rlplug_envs.families.classic import find

HERE = Path(__file__).parent
NUM_ENVS = (1, 2, 8, 16)
#: The least share of the fastest other's speed that rlplug's shall be.
BAR = 0.95
#: Different actions that are taken in turn.
ACTIONS = 256
#: Columns: how rlplug steps environments, and what else does.
OURS = ("rlplug", "env workers", "`envpool:`")
OTHERS = ("SyncVectorEnv", "AsyncVectorEnv", "EnvPool")
#: What is shown beside them.
OWN = "own vector"

NOTE = """\
Env steps per second, medians. `rlplug` is what `rlplug run` steps in its own process: observations checked,
episodes counted, each environment seeded for itself. `env workers` are there where `--env-workers 0` chooses some.
`envpool:` is rlplug on EnvPool. A call of `step` that resets an environment is no step of it. The share is that of
rlplug's fastest beside the fastest of the next three columns, taken within a turn. *Own vector* is what the package
of the environment brings (`make_vec`): it seeds all at once. Pong has DQN's recipe on all sides: 4 frames skipped,
84 by 84, gray, 4 stacked, rewards clipped, lives as episodes, sticky actions. A step of *1 ms* computes for a
millisecond of processor time.
"""


def bare(id: str) -> gymnasium.Env[Any, Any]:
    """An environment without Gymnasium's checker."""
    return gymnasium.make(id, disable_env_checker=True)


def pong() -> gymnasium.Env[Any, Any]:
    """Pong as DQN saw it, of Gymnasium's wrappers."""
    find("ALE/Pong-v5")  # which registers it, in other processes too
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, disable_env_checker=True)
    return FrameStackObservation(
        ClipReward(AtariPreprocessing(env, terminal_on_life_loss=True), -1, 1), 4
    )


@dataclass(frozen=True)
class Case:
    """An environment on all sides.

    Attributes:
        id: what is typed for rlplug, inside the wrappers `wrap`.
        make: makes one for Gymnasium's vectors. own: settings of its own vector, None where it has none.
        pool: EnvPool's id, empty where it has none; `settings` are of EnvPool, `below` those that rlplug leaves to
            the wrappers `around`.
    """

    id: str
    make: Callable[[], gymnasium.Env[Any, Any]]
    wrap: tuple[str, ...] = ()
    own: Mapping[str, Any] | None = None
    pool: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, Any] = field(default_factory=dict)
    around: tuple[str, ...] = ()


CASES = {
    "CartPole-v1": Case("CartPole-v1", partial(bare, "CartPole-v1"), own={}, pool="CartPole-v1"),
    "Pong": Case(
        "ALE/Pong-v5",
        pong,
        wrap=("atari",),
        own={"episodic_life": True},
        pool="Pong-v5",
        settings={"repeat_action_probability": 0.25},
        below={"episodic_life": True, "reward_clip": True},
        around=("episodic-life", "clip-reward"),
    ),
    "HalfCheetah-v5": Case(
        "HalfCheetah-v5", partial(bare, "HalfCheetah-v5"), pool="HalfCheetah-v5"
    ),
    "1 ms": Case(f"{HERE}/slow.py:Busy", Busy),
}


class Side(Protocol):
    """A vector of environments that is measured."""

    actions: list[Any]

    def step(self, action: Any) -> object: ...
    def transitions(self, action: Any) -> int:
        """Step, and return how many of the environments took a step."""
        ...

    def close(self) -> object: ...


class Ours:
    """The environments of a run of ours."""

    def __init__(self, plan: Plan) -> None:
        env = training_env(plan)
        env.reset(0)
        env.spec.action.seed(0)
        self.actions = [sample(env.spec.action, env.spec.num_envs) for _ in range(ACTIONS)]
        self.step = env.step
        self.close = env.close

    def transitions(self, action: Any) -> int:
        return self.step(action).count


class Theirs:
    """A vector of Gymnasium's kind."""

    def __init__(
        self, venv: VectorEnv[Any, Any, Any], actions: gymnasium.Space[Any] | None = None
    ) -> None:
        venv.reset()
        one = venv.single_action_space
        one.seed(0)
        self.actions = [
            np.stack([one.sample() for _ in range(venv.num_envs)]) for _ in range(ACTIONS)
        ]
        self.step = venv.step
        self.close = venv.close
        self.num_envs = venv.num_envs
        self.resetting = 0
        self.resets = venv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP

    def transitions(self, action: Any) -> int:
        _, _, terminated, truncated, _ = self.step(action)
        found = self.num_envs - self.resetting
        self.resetting = int(np.count_nonzero(terminated | truncated)) if self.resets else 0
        return found


def sides(case: Case, num_envs: int) -> Iterator[tuple[str, Side]]:
    """Every side of a case; processes are forked before EnvPool has threads."""
    makes = [case.make] * num_envs
    yield "AsyncVectorEnv", Theirs(AsyncVectorEnv(makes))
    yield "SyncVectorEnv", Theirs(SyncVectorEnv(makes))
    yield "rlplug", Ours(plan_of(case.id, num_envs, case.wrap))
    chosen, _ = settled(plan_of(case.id, num_envs, case.wrap, env_workers=0))
    if min(chosen.options.env_workers, num_envs) > 1:
        yield "env workers", Ours(chosen)
    if case.own is not None:
        spec = find(case.id)
        yield OWN, Theirs(gymnasium.make_vec(spec, num_envs, "vector_entry_point", **case.own))
    if case.pool and find_spec("envpool"):
        import envpool

        settings = {**case.settings, **case.below, "num_envs": num_envs, "seed": 0}
        yield "EnvPool", Theirs(envpool.make_gymnasium(case.pool, **settings))
        arguments = {f"env.{name}": value for name, value in case.settings.items()}
        yield (
            "`envpool:`",
            Ours(plan_of(f"envpool:{case.pool}", num_envs, case.around, **arguments)),
        )


def plan_of(id: str, num_envs: int, wrap: tuple[str, ...], **values: Any) -> Plan:
    return Plan.make("ppo", id, {"num_envs": num_envs, "wrap": list(wrap), **values})


@dataclass
class Entry:
    """A side at work: steps a turn, the share of them that are transitions, env steps a second of each turn."""

    side: Side
    num_envs: int
    steps: int = 1
    share: float = 1.0
    speeds: list[float] = field(default_factory=list)

    def warm(self, seconds: float) -> None:
        """Find how many vector steps take so long, and how many of them step an environment."""
        while (took := self.seconds()) < seconds / 2:
            self.steps *= 2
        self.steps = max(1, round(self.steps * seconds / took))
        found = sum(
            self.side.transitions(self.side.actions[number % ACTIONS])
            for number in range(self.steps)
        )
        self.share = found / self.steps / self.num_envs

    def seconds(self) -> float:
        step = self.side.step
        actions = self.side.actions
        began = time.perf_counter()
        for number in range(self.steps):
            step(actions[number % ACTIONS])
        return time.perf_counter() - began

    def turn(self) -> None:
        self.speeds.append(self.steps * self.num_envs * self.share / self.seconds())


def measure(case: Case, num_envs: int, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Env steps per second of every side, turn by turn."""
    entries = {name: Entry(side, num_envs) for name, side in sides(case, num_envs)}
    try:
        for entry in entries.values():
            entry.warm(seconds)
        for number in range(rounds):
            names = list(entries)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                entries[name].turn()
    finally:
        for entry in entries.values():
            entry.side.close()
    return {name: entry.speeds for name, entry in entries.items()}


def line(name: str, num_envs: int, found: Mapping[str, list[float]]) -> list[str]:
    """A line of the table."""
    medians = {side: statistics.median(speeds) for side, speeds in found.items()}
    own, other = (
        max((one for one in both if one in medians), key=medians.__getitem__)
        for both in (OURS, OTHERS)
    )
    share = statistics.median(one / two for one, two in zip(found[own], found[other], strict=True))
    shown = [f"{medians[side]:,.0f}" if side in medians else "" for side in (*OURS, *OTHERS, OWN)]
    return [name, str(num_envs), *shown, f"{share:.2f}{'' if share >= BAR else ' (below)'}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=list(CASES), help=f"{', '.join(CASES)}, or ids of Gymnasium"
    )
    parser.add_argument("--num-envs", type=int, nargs="+", default=NUM_ENVS)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = []
    for name in asked.cases:
        case = CASES.get(name) or Case(name, partial(bare, name))
        for num_envs in asked.num_envs:
            lines.append(line(name, num_envs, measure(case, num_envs, asked.seconds, asked.rounds)))
            print(*lines[-1], sep="  ", flush=True)
    text = table(("environment", "num_envs", *OURS, *OTHERS, OWN, f"share (bar {BAR})"), lines)
    print(text)
    if asked.write:
        measured = f"medians of {asked.rounds} turns of {asked.seconds:g} s"
        parts = ("## Vectors of environments", "`python bench/vector.py`", text, NOTE.strip())
        write_section(
            "vector", "\n\n".join([*parts, f"{machine()}; rlplug at {revision()}; {measured}."])
        )


if __name__ == "__main__":
    main()
