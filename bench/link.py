"""What the process link of decoupled actors costs: the constants behind the arithmetic in docs/scale.md.

    python bench/link.py

Seconds of one thread's processor time, the least of many repeats, so that other work on the machine changes little.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor, Lane
from rlplug_core.loop.chunk_queue import Traffic
from rlplug_core.loop.chunks import Places, chunk_arrays, read, write
from rlplug_core.loop.lag_limiter import Permit
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.shared_weights import SharedWeights
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.plugins.presets import resolve
from rlplug_core.types import Chunk, tree_map

ALGORITHM = "impala"
ENV = "CartPole-v1"


def least(function: Callable[[], Any], repeats: int = 60, inner: int = 20) -> float:
    """Microseconds of processor time that a call takes."""
    found = []
    for _ in range(repeats):
        began = time.thread_time()
        for _ in range(inner):
            function()
        found.append((time.thread_time() - began) / inner)
    return 1e6 * min(found)


def main() -> None:
    set_torch(1)
    plan = Plan.make(ALGORITHM, ENV, resolve(ALGORITHM, ENV, {})[0])
    env = plan.make_env(plan.options.num_envs)
    length = plan.chunk_steps
    learner = plan.make_learner(env.spec)
    agent = learner.agent()
    buffer = learner.buffer()
    clock = Clock(10**9)
    actor = Actor(env, Lane(learner, agent, buffer), clock)
    actor.reset(1)
    ((_, step),) = actor.step()
    places = Places()
    layout = chunk_arrays(step, length, places)
    memory = np.zeros(places.size, np.uint8)
    store = tree_map(lambda place: place.view(memory), layout)
    for t in range(length):
        write(store, t, step)

    def take() -> Any:
        for t in range(length):
            buffer.add(read(store, t))
        return next(iter(buffer.batches(clock)))

    rollout = take()
    weights = agent.weights()
    shared = SharedWeights.like(weights)
    print(f"a chunk of {length} x {plan.options.num_envs} env steps    {places.size:8,} bytes")
    print(f"weights                         {shared.memory.numel():8,} bytes")
    for name, function in {
        "act and step, a vector step": actor.step,
        "write a vector step": lambda: write(store, 1, step),
        "take a chunk into the buffer": take,
        "learn from a chunk": lambda: learner.update(rollout, clock),
        "publish weights": lambda: shared.put(weights, 1),
        "pull weights": lambda: shared.get(weights),
    }.items():
        print(f"{name:32}{least(function):8,.1f} us")
    for actors in (2, 64, 1024):
        print(f"{f'traffic of {actors:,} actors':32}{least(traffic(actors), 5, 20):8,.1f} us")


def traffic(actors: int) -> Callable[[], None]:
    """What the learner does about a chunk while all permits are out: it arrives, is taken, and its permit goes on."""
    made = Traffic(2 * actors - 1, 16, actors, Clock(10**9))
    out = deque[Permit]()

    def turn() -> None:
        while permit := made.grant(range(actors)):
            out.append(permit)
        source = out.popleft().source
        made.arrived(Chunk(source, made.version, {}), 160, [])
        made.take()
        made.published()

    turn()
    return turn


if __name__ == "__main__":
    main()
