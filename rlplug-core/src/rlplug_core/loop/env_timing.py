"""The time of an environment's step, and the best number of processes for it."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import legal, sample
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.plugins.env_base import complete
from rlplug_core.processor import cores
from rlplug_core.protocols import Env
from rlplug_core.seeds import preserve_generators
from rlplug_core.types import Obs

#: Seconds that a worker's two messages take in one vector step.
MESSAGES = 60e-6
#: Seconds of a measurement of steps.
DURATION = 0.3


def seconds_per_step(env: Env) -> float:
    """Measure the mean time of a step of `env` with random actions; the process's random generators do not change."""
    with preserve_generators():
        obs: Obs = env.reset(0).obs
        env.spec.action.seed(0)
        start = time.perf_counter()
        steps = 0
        while time.perf_counter() - start < DURATION:
            action = sample(env.spec.action, env.spec.num_envs)
            mask = mask_of(env.spec, obs)
            obs = env.step(action if mask is None else legal(env.spec.action, action, mask)).obs
            steps += 1
        return (time.perf_counter() - start) / steps


def choose_env_workers(plan: Plan) -> tuple[Plan, str]:
    """Return the plan with a number of environment workers if it is `auto`, and the reason for the number."""
    if plan.options.env_workers:
        return plan, ""
    bare_env = plan.bare_env(1)
    bare_env.close()
    on_device = bare_env.spec.device is not None
    if on_device or complete(bare_env).threads:
        stepping = f"on {bare_env.spec.device}" if on_device else "in its own threads"
        message = f"{plan.env} steps {stepping}: --env-workers 1"
        return replace(plan, options=replace(plan.options, env_workers=1)), message
    env = plan.make_env(1)
    with closing(env):
        seconds = seconds_per_step(env)
    count = fastest_worker_count(seconds, plan.options.num_envs, cores())
    message = f"a step of {plan.env} takes {seconds * 1e6:,.0f} µs: --env-workers {count}"
    return replace(plan, options=replace(plan.options, env_workers=count)), message


def fastest_worker_count(seconds: float, num_envs: int, cores: int) -> int:
    """Return the fastest number of workers for a vector step of `num_envs`, if one environment needs `seconds`.

    One worker is the run's own process, which needs no messages; several must be a fifth faster.
    """
    times = {1: num_envs * seconds / 1.2}
    for workers in range(2, min(cores, num_envs) + 1):
        times[workers] = -(-num_envs // workers) * seconds + workers * MESSAGES
    return min(times, key=times.__getitem__)
