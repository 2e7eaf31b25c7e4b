"""Measure environments on the device against JAX: `python bench/tensor.py [--num-envs 4096] [--rounds 5]`.

Install gymnax 0.0.9 and jax 0.10 in a separate directory: `python -m pip install --target DIRECTORY gymnax==0.0.9
'jax[cpu]'`, with `PYTHONPATH=DIRECTORY`. Install skrl 2.1.1 and rsl-rl-lib 5.5.1 with `python -m pip install --no-deps
skrl rsl-rl-lib tensordict pyvers orjson importlib_metadata`. Missing packages are skipped. Measurements alternate;
each number is the median of the rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from tensor_jax import jax_ppo
from tensor_peers import ENTROPY, EPOCHS, PARTS, RATE, ROLLOUT, rsl_ppo, skrl_ppo

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import step_and_train
from rlplug_envs.adapter import Adapter
from rlplug_envs.tensors.cart_pole import CartPole

STEPS = 100


def torch_world(rows: int) -> Callable[[], int]:
    """Return a function that steps CartPole in torch with random actions."""
    world = CartPole(rows)
    world.reset(seed=0)

    def run() -> int:
        for _ in range(STEPS):
            world.step(torch.randint(0, 2, (rows,)))
        return STEPS * rows

    return run


def gymnax_world(rows: int) -> Callable[[], int]:
    """Return a function that steps CartPole in gymnax, in one `jit`."""
    import gymnax
    import jax

    env, params = gymnax.make("CartPole-v1")

    def step(carry: Any, key: Any) -> Any:
        keys = jax.random.split(key, rows + 1)
        action = jax.random.randint(keys[0], (rows,), 0, 2)
        _, state, *_ = jax.vmap(env.step, (0, 0, 0, None))(keys[1:], carry, action, params)
        return state, None

    steps = jax.jit(lambda state, key: jax.lax.scan(step, state, jax.random.split(key, STEPS))[0])
    key = jax.random.PRNGKey(0)
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, rows), params)

    def run() -> int:
        nonlocal state
        state = jax.block_until_ready(steps(state, key))
        return STEPS * rows

    return run


def vector(rows: int, adapted: bool) -> Callable[[], int]:
    """Return a function that steps Gymnasium's vector of CartPole, with or without the adapter."""
    env: Any = CartPoleVectorEnv(num_envs=rows)
    if adapted:
        env = Adapter(lambda bare=env: bare, "CartPole-v1", inexact="not saved")
        env.reset(0)
    else:
        env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, rows))

    def run() -> int:
        for action in actions:
            env.step(action)
        return STEPS

    return run


def rlplug_ppo(rows: int) -> Callable[[], int]:
    """Return a function that makes one rollout and update of `ppo tensor/CartPole-v1`."""
    options = {"num_envs": rows, "n_steps": ROLLOUT, "n_epochs": EPOCHS, "total_timesteps": 10**9}
    options |= {"batch_size": rows * ROLLOUT // PARTS, "learning_rate": RATE, "ent_coef": ENTROPY}
    runner: Any = build(Plan.make("ppo", "tensor/CartPole-v1", options), Clock(10**9))

    def run() -> int:
        for _ in range(ROLLOUT):
            step_and_train(runner.actor, runner.clock, runner.meter)
        return ROLLOUT * rows

    return run


def seconds(runs: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Return the median of seconds per counted unit of each run; they take turns, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn_number in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            count = run()
            if turn_number:
                times[name].append((time.perf_counter() - start) / count)
    return {name: median(values) for name, values in times.items()}


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num-envs", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows = chosen.num_envs
    rounds = chosen.rounds
    torch.set_num_threads(1)
    jax = is_installed("gymnax")
    world = seconds(
        {"torch": torch_world(rows)} | ({"gymnax": gymnax_world(rows)} if jax else {}), rounds
    )
    vectors = {
        f"{kind} {count}": vector(count, kind == "adapter")
        for count in (rows // 4, rows)
        for kind in ("bare", "adapter")
    }
    steps = seconds(vectors, rounds)
    others = {"jax": (jax_ppo, "gymnax"), "skrl": (skrl_ppo, "skrl"), "rsl_rl": (rsl_ppo, "rsl_rl")}
    peers = {name: make(rows) for name, (make, package) in others.items() if is_installed(package)}
    ppo = seconds({"rlplug": rlplug_ppo(rows)} | peers, rounds)
    added = {
        count: 1e3 * (steps[f"adapter {count}"] - steps[f"bare {count}"])
        for count in (rows // 4, rows)
    }
    report = {
        "rows": rows,
        "env steps per second, random actions": {
            name: round(1 / each) for name, each in world.items()
        },
        "env steps per second, PPO": {name: round(1 / each) for name, each in ppo.items()},
        "milliseconds per vector step": {
            name: round(1e3 * each, 3) for name, each in steps.items()
        },
        "milliseconds added by the adapter": {
            count: round(each, 3) for count, each in added.items()
        },
    }
    if jax:
        report["torch / gymnax"] = round(world["gymnax"] / world["torch"], 2)
    for name in peers:
        report[f"rlplug / {name}, PPO"] = round(ppo[name] / ppo["rlplug"], 2)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
