"""What one vector step costs, `SerialEnvs` and `Adapter` beside bare Gymnasium loops: microseconds, medians of rounds.

python bench/env_step.py [CartPole-v1 …]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_envs.adapter import Adapter
from rlplug_envs.capture import self_test
from rlplug_envs.families.classic import _limit, _single, _vector, find
from rlplug_envs.vector import SerialEnvs

Run = Callable[[int], None]


def bare(id: str, rows: int, actions: np.ndarray) -> Run:
    """What a script does: a list of environments, one array of observations, a reset where an episode ended."""
    envs = [gymnasium.make(id, disable_env_checker=True) for _ in range(rows)]
    obs = np.stack([env.reset(seed=row)[0] for row, env in enumerate(envs)])
    rewards, dones = np.zeros(rows, np.float32), np.zeros(rows, np.bool_)
    scalar = actions.ndim == 2

    def run(steps: int) -> None:
        for number in range(steps):
            choice = actions[number].tolist() if scalar else actions[number]
            for row, env in enumerate(envs):
                obs[row], rewards[row], terminated, truncated, _ = env.step(choice[row])
                dones[row] = terminated or truncated
                if dones[row]:
                    obs[row], _ = env.reset()

    return run


def ours(env: SerialEnvs | Adapter, actions: np.ndarray) -> Run:
    env.reset(0)

    def run(steps: int) -> None:
        for number in range(steps):
            env.step(actions[number])

    return run


def gymnasiums(env: gymnasium.vector.VectorEnv, actions: np.ndarray) -> Run:
    env.reset(seed=0)

    def run(steps: int) -> None:
        for number in range(steps):
            env.step(actions[number])

    return run


def contestants(id: str, rows: int, steps: int) -> dict[str, Run]:
    spec = find(id)
    env = SerialEnvs(lambda: _single(spec), rows, id, _limit(spec), inexact="")
    rng = np.random.default_rng(0)
    shape = env.spec.action.shape or ()
    actions = rng.uniform(-1, 1, (steps, rows, *shape)).astype(np.float32)
    if not shape:
        actions = rng.integers(0, env.spec.action.n, (steps, rows))
    made = [lambda: gymnasium.make(id, disable_env_checker=True)] * rows
    runs = {
        "bare loop": bare(id, rows, actions),
        "SerialEnvs": ours(env, actions),
        "SerialEnvs on wrapped ones": ours(SerialEnvs(made[0], rows, id, inexact=""), actions),
        "SyncVectorEnv": gymnasiums(SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP), actions),
    }
    if spec.vector_entry_point:
        runs["native"] = gymnasiums(_vector(spec, rows), actions)
        runs["Adapter(native)"] = ours(Adapter(lambda: _vector(spec, rows), id, ""), actions)
    return runs


def measure(id: str, rows: int, steps: int, rounds: int) -> dict[str, float]:
    runs = contestants(id, rows, steps)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run(steps)
            times[name].append((time.perf_counter() - start) / steps * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", default=["CartPole-v1"])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for id in options.ids:
        spec = find(id)
        start = time.perf_counter()
        self_test(lambda spec=spec: SerialEnvs(lambda: _single(spec), 1, spec.id, 20, ""))
        print(f"\n{id}: self-test {(time.perf_counter() - start) * 1e3:.1f} ms\n")
        print("| environments | " + " | ".join(contestants(id, 1, 1)) + " |")
        print("|---" * (1 + len(contestants(id, 1, 1))) + "|")
        for rows in options.num_envs:
            found = measure(id, rows, options.steps, options.rounds)
            print(f"| {rows} | " + " | ".join(f"{value:.1f}" for value in found.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
