"""Measure environments on the device against JAX: `python bench/tensor.py [--num-envs 4096] [--rounds 5]`.

gymnax 0.0.9 and jax 0.10 have to be importable, from a directory of their own: `python -m pip install --target
DIRECTORY gymnax==0.0.9 'jax[cpu]'`, and `PYTHONPATH=DIRECTORY`. Without them their rows are left out. Rows alternate;
each number is the median of the rounds. The loop of PPO in JAX is in one `jit`, as in PureJaxRL (Lu et al., 2022).
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

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import turn
from rlplug_envs.adapter import Adapter
from rlplug_envs.tensors.cart_pole import CartPole

STEPS = 100
ROLLOUT, EPOCHS, PARTS = 32, 4, 4
#: Options of both loops of PPO.
GAMMA, LAMBDA, CLIP, RATE, ENTROPY = 0.99, 0.95, 0.2, 3e-4, 0.01


def torch_world(rows: int) -> Callable[[], int]:
    """Steps of CartPole in torch with random actions."""
    world = CartPole(rows)
    world.reset(seed=0)

    def run() -> int:
        for _ in range(STEPS):
            world.step(torch.randint(0, 2, (rows,)))
        return STEPS * rows

    return run


def gymnax_world(rows: int) -> Callable[[], int]:
    """The same in gymnax, in one `jit`."""
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
    """Steps of Gymnasium's vector of CartPole, bare or by the adapter."""
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
    """One rollout and update of `ppo tensor/CartPole-v1`."""
    options = {"num_envs": rows, "n_steps": ROLLOUT, "n_epochs": EPOCHS, "total_timesteps": 10**9}
    options |= {"batch_size": rows * ROLLOUT // PARTS, "learning_rate": RATE, "ent_coef": ENTROPY}
    runner: Any = build(Plan.make("ppo", "tensor/CartPole-v1", options), Clock(10**9))

    def run() -> int:
        for _ in range(ROLLOUT):
            turn(runner.actor, runner.clock, runner.meter)
        return ROLLOUT * rows

    return run


def jax_ppo(rows: int) -> Callable[[], int]:
    """One rollout and update of PPO in one `jit`, on gymnax."""
    import gymnax
    import jax
    import jax.numpy as jnp

    env, settings = gymnax.make("CartPole-v1")

    def layers(key: Any, sizes: tuple[int, ...]) -> list[Any]:
        keys = jax.random.split(key, len(sizes))
        pairs = zip(keys, sizes[:-1], sizes[1:], strict=False)
        return [(jax.random.normal(one, (a, b)) / a**0.5, jnp.zeros(b)) for one, a, b in pairs]

    def forward(net: Any, x: Any) -> Any:
        for weight, bias in net[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return x @ net[-1][0] + net[-1][1]

    def loss(nets: Any, part: Any) -> Any:
        obs, action, before, advantage, target = part
        logits = jax.nn.log_softmax(forward(nets[0], obs))
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = jnp.exp(log_prob - before)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
        entropy = -(jnp.exp(logits) * logits).sum(1).mean()
        error = jnp.square(forward(nets[1], obs)[:, 0] - target).mean()
        return -gain.mean() + 0.5 * error - ENTROPY * entropy

    def adam(carry: Any, part: Any) -> Any:
        nets, one, two, count = carry
        slope = jax.grad(loss)(nets, part)
        tree = jax.tree.map
        one = tree(lambda m, g: 0.9 * m + 0.1 * g, one, slope)
        two = tree(lambda v, g: 0.999 * v + 0.001 * g * g, two, slope)
        a, b, count = 1 - 0.9 ** (count + 1), 1 - 0.999 ** (count + 1), count + 1
        nets = tree(lambda p, m, v: p - RATE * m / a / (jnp.sqrt(v / b) + 1e-5), nets, one, two)
        return (nets, one, two, count), None

    def act(carry: Any, key: Any) -> Any:
        nets, obs, state = carry
        keys = jax.random.split(key, rows + 1)
        logits = jax.nn.log_softmax(forward(nets[0], obs))
        action = jax.random.categorical(keys[0], logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        value = forward(nets[1], obs)[:, 0]
        step = jax.vmap(env.step, (0, 0, 0, None))
        after, state, reward, done, _ = step(keys[1:], state, action, settings)
        return (nets, after, state), (obs, action, log_prob, value, reward, done)

    def estimate(carry: Any, row: Any) -> Any:
        advantage, after = carry
        value, reward, done = row
        error = reward + GAMMA * after * (1 - done) - value
        advantage = error + GAMMA * LAMBDA * (1 - done) * advantage
        return (advantage, value), advantage

    @jax.jit
    def update(learner: Any, obs: Any, state: Any, key: Any) -> Any:
        key, acting, shuffling = jax.random.split(key, 3)
        rollout = jax.random.split(acting, ROLLOUT)
        (_, obs, state), steps = jax.lax.scan(act, (learner[0], obs, state), rollout)
        last = forward(learner[0][1], obs)[:, 0]
        columns = (steps[3], steps[4], steps[5].astype(jnp.float32))
        _, advantage = jax.lax.scan(estimate, (jnp.zeros(rows), last), columns, reverse=True)
        data = (*steps[:3], advantage, advantage + steps[3])
        flat = [part.reshape(-1, *part.shape[2:]) for part in data]

        def epoch(learner: Any, key: Any) -> Any:
            order = jax.random.permutation(key, ROLLOUT * rows).reshape(PARTS, -1)
            return jax.lax.scan(adam, learner, [part[order] for part in flat])

        learner, _ = jax.lax.scan(epoch, learner, jax.random.split(shuffling, EPOCHS))
        return learner, obs, state, key

    key = jax.random.PRNGKey(0)
    nets = [layers(key, (4, 64, 64, 2)), layers(key, (4, 64, 64, 1))]
    zeros = jax.tree.map(jnp.zeros_like, nets)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, rows), settings)
    now = ((nets, zeros, zeros, jnp.zeros(())), obs, state, key)

    def run() -> int:
        nonlocal now
        now = jax.block_until_ready(update(*now))
        return ROLLOUT * rows

    return run


def seconds(runs: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Return the median of seconds per counted unit of each run; they take turns, after one round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn_number in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            count = run()
            if turn_number:
                found[name].append((time.perf_counter() - start) / count)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num-envs", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows = chosen.num_envs
    rounds = chosen.rounds
    torch.set_num_threads(1)
    jax = importlib.util.find_spec("gymnax") is not None
    world = seconds(
        {"torch": torch_world(rows)} | ({"gymnax": gymnax_world(rows)} if jax else {}), rounds
    )
    doors = {
        f"{kind} {count}": vector(count, kind == "adapter")
        for count in (rows // 4, rows)
        for kind in ("bare", "adapter")
    }
    door = seconds(doors, rounds)
    ppo = seconds({"rlplug": rlplug_ppo(rows)} | ({"jax": jax_ppo(rows)} if jax else {}), rounds)
    added = {
        count: 1e3 * (door[f"adapter {count}"] - door[f"bare {count}"])
        for count in (rows // 4, rows)
    }
    report = {
        "rows": rows,
        "env steps per second, random actions": {
            name: round(1 / each) for name, each in world.items()
        },
        "env steps per second, PPO": {name: round(1 / each) for name, each in ppo.items()},
        "milliseconds per vector step": {name: round(1e3 * each, 3) for name, each in door.items()},
        "milliseconds added by the adapter": {
            count: round(each, 3) for count, each in added.items()
        },
    }
    if jax:
        report["torch / gymnax"] = round(world["gymnax"] / world["torch"], 2)
        report["rlplug / jax"] = round(ppo["jax"] / ppo["rlplug"], 2)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
