"""A few lines about what an environment that no preset names was taken for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
from gymnasium import spaces

from rlplug_core.clock import Clock
from rlplug_core.config.import_string import is_target
from rlplug_core.errors import quoted
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_kind import kind_of
from rlplug_core.plugins.families import time_limit
from rlplug_core.plugins.names import find
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.presets import is_known
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import untouched
from rlplug_core.types import Space, Spec

#: Steps that are timed, and the seconds after which enough is seen.
STEPS = 1_000
ENOUGH = 0.3


def survey(plan: Plan) -> str:
    """Spaces, time limit, preset, what is normalized, number of environments and speed; empty where a preset names it.

    An environment of its own is made and stepped with the actions of an untrained agent.
    """
    if is_known(plan.algorithm, plan.env):
        return ""
    env = plan.make_eval_env(1)
    try:
        speed = walk(plan.make_learner(env.spec).agent(), env).speed
        acted = complete(env).action_space
    finally:
        env.close()
    limit = time_limit(plan.env, env.spec.limit)
    return "\n".join(
        (
            f"environment  {env.spec.id}: observation space {shown(env.spec.obs)}, "
            f"action space {shown(acted)}; {limit}; {speed:,.0f} steps/s by itself",
            f"             {_preset(plan, env.spec)}; num_envs {plan.options.num_envs}; {_normalized(plan)}",
        )
    )


@dataclass
class Walk:
    """The steps that an agent made to find out about an environment.

    Attributes:
        steps: of all rows together. seconds: that the environment alone took for them.
        low, high: the least and the largest reward among them.
    """

    steps: int = 0
    seconds: float = 0.0
    low: float = inf
    high: float = -inf

    @property
    def speed(self) -> float:
        """Return the steps per second."""
        return self.steps / self.seconds


def walk(agent: Agent, env: Env) -> Walk:
    """Step an environment until enough is seen of it; without the agent's time."""
    found = Walk()
    with untouched():
        memory = agent.initial(env.spec.num_envs)
        now = env.reset(0)
        while found.steps < STEPS and found.seconds < ENOUGH:
            act = agent.act(now.obs, now.is_first, memory, Clock(1))
            memory = act.recurrent_state
            began = time.perf_counter()
            now = env.step(act.action)
            found.seconds = found.seconds + time.perf_counter() - began
            found.steps = found.steps + env.spec.num_envs
            rewards = now.reward[now.valid].tolist()
            found.low, found.high = min(found.low, *rewards, inf), max(found.high, *rewards, -inf)
    return found


def shown(space: Space) -> str:
    """A space in a few words; of a Box its bounds only where they are the same in all places."""
    if isinstance(space, spaces.Dict):
        return (
            "{" + ", ".join(f"{name}: {shown(part)}" for name, part in space.spaces.items()) + "}"
        )
    if not isinstance(space, spaces.Box):
        return str(space)
    size = f"Box({', '.join(map(str, space.shape))}) of {space.dtype}"
    if not space.low.size:
        return size
    low = space.low.min()
    high = space.high.max()
    alike = space.low.max() == low > -np.inf and space.high.min() == high < np.inf
    bounds = f" in [{low:g}, {high:g}]" if alike else ""
    return size + bounds


def apart(here: Spec, there: Spec) -> str:
    """In what the spaces of an environment differ from those of another, in words; empty where they do not."""
    return ", ".join(
        [
            *_apart(here.obs, there.obs, "observations"),
            *_apart(here.action, there.action, "actions"),
        ]
    )


def _apart(here: Space, there: Space, what: str) -> Iterator[str]:
    """The differences of one space, of Dicts only the parts that differ."""
    if not (isinstance(here, spaces.Dict) and isinstance(there, spaces.Dict)):
        if here != there:
            said = (
                str if shown(here) == shown(there) else shown
            )  # a Box's bounds may differ in some places alone
            yield f"its {what} are {said(here)} instead of {said(there)}"
        return
    if lacking := [name for name in there if name not in here.spaces]:
        yield f"its {what} lack {quoted(lacking)}"
    if more := [name for name in here if name not in there.spaces]:
        yield f"its {what} have {quoted(more)} too"
    for name in here:
        if name in there.spaces:
            yield from _apart(here[name], there[name], f"{what}/{name}")


def _preset(plan: Plan, spec: Spec) -> str:
    files = [] if is_target(plan.algorithm) else chain(find("algorithms", plan.algorithm))
    kind = kind_of(spec)
    return f"preset: {kind}" if any(kind in presets.kinds for presets in files) else "no preset"


def _normalized(plan: Plan) -> str:
    named = {"net.normalize_obs": "observations", "normalize_reward": "rewards"}
    yes = [what for name, what in named.items() if plan.flat.get(name)]
    return f"{' and '.join(yes)} normalized" if yes else "nothing normalized"
