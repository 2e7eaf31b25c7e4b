"""A few lines about what an environment that no preset names was taken for."""

from __future__ import annotations

import time

import numpy as np
from gymnasium import spaces

from rlplug_core.clock import Clock
from rlplug_core.config.targets import is_target
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.kinds import kind_of
from rlplug_core.plugins.names import find
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.presets import is_known
from rlplug_core.protocols import Agent, Env, SupportsActionSpace
from rlplug_core.seeds import untouched
from rlplug_core.types import Space, Spec

#: Steps that are timed, and the seconds after which enough is seen.
STEPS, ENOUGH = 1_000, 0.3


def survey(plan: Plan) -> str:
    """Spaces, time limit, preset, what is normalized, number of environments and speed; empty where a preset names it.

    An environment of its own is made and stepped with the actions of an untrained agent.
    """
    if is_known(plan.algorithm, plan.env):
        return ""
    env = plan.make_eval_env(1)
    try:
        speed = steps_per_second(plan.make_learner(env.spec).agent(), env)
        acted = env.action_space if isinstance(env, SupportsActionSpace) else env.spec.action
    finally:
        env.close()
    limit = f"at most {env.spec.limit:,} steps" if env.spec.limit else "no time limit known"
    return "\n".join((
        f"environment  {env.spec.id}: sees {shown(env.spec.obs)}, does {shown(acted)}; {limit}; "
        f"{speed:,.0f} steps/s by itself",
        f"             {_preset(plan, env.spec)}; num_envs {plan.options.num_envs}; {_normalized(plan)}",
    ))  # fmt: skip


def steps_per_second(agent: Agent, env: Env) -> float:
    """The pace of an environment alone, without the agent's time."""
    with untouched():
        memory, now, spent, steps = agent.initial(env.spec.num_envs), env.reset(0), 0.0, 0
        while steps < STEPS and spent < ENOUGH:
            act = agent.act(now.obs, now.is_first, memory, Clock(1))
            memory, began = act.recurrent_state, time.perf_counter()
            now = env.step(act.action)
            spent, steps = spent + time.perf_counter() - began, steps + env.spec.num_envs
        return steps / spent


def shown(space: Space) -> str:
    """A space in a few words; of a Box its bounds only where they are the same in all places."""
    if isinstance(space, spaces.Dict):
        return "{" + ", ".join(f"{name}: {shown(part)}" for name, part in space.spaces.items()) + "}"
    if not isinstance(space, spaces.Box):
        return str(space)
    low, high = space.low.min(), space.high.max()
    alike = space.low.max() == low > -np.inf and space.high.min() == high < np.inf
    bounds = f" in [{low:g}, {high:g}]" if alike else ""
    return f"Box({', '.join(map(str, space.shape))}) of {space.dtype}{bounds}"


def _preset(plan: Plan, spec: Spec) -> str:
    files, kind = [] if is_target(plan.algorithm) else chain(find("algorithms", plan.algorithm)), kind_of(spec)
    return f"preset: {kind}" if any(kind in presets.kinds for presets in files) else "no preset"


def _normalized(plan: Plan) -> str:
    named = {"net.normalize_obs": "observations", "normalize_reward": "rewards"}
    yes = [what for name, what in named.items() if plan.flat.get(name)]
    return f"{' and '.join(yes)} normalized" if yes else "nothing normalized"
