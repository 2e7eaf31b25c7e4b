"""An actor and a learner in two processes, connected by a `Link` over a pipe that carries plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from rlplug_core.batches import Rollout, Truncations
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.plan import Plan
from rlplug_core.protocols import Agent
from rlplug_core.types import Chunk, State


class PipeLink:
    """Both ends of a link over one pipe; checks that messages hold only numbers, names and arrays."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.version = 0
        self.clock = Clock(1)

    def publish(self, weights: State) -> None:
        """Send a new version of the weights with its clock."""
        self.version += 1
        plain = {name: tensor.detach().numpy().copy() for name, tensor in weights.items()}
        self._send({"version": self.version, "weights": plain, "clock": self.clock.state_dict()})

    def pull(self, agent: Agent, seen: int) -> tuple[int, Clock]:
        """Wait for a version after `seen`, copy it to the agent, and return its number and clock."""
        message = self.pipe.recv()
        assert message["version"] > seen
        views = agent.weights()
        assert views.keys() == message["weights"].keys()
        for name, array in message["weights"].items():
            views[name].copy_(torch.from_numpy(array))
        clock = Clock(1)
        clock.load_state_dict(message["clock"])
        return message["version"], clock

    def send(self, chunk: Chunk) -> None:
        self._send(asdict(chunk))

    def receive(self) -> list[Chunk]:
        return [Chunk(**self.pipe.recv())]

    def _send(self, message: State) -> None:
        check_plain(message)
        self.pipe.send(message)


def check_plain(tree: Any) -> None:
    """Assert that a tree holds only dictionaries, arrays of numbers, numbers and strings."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            assert isinstance(key, str)
            check_plain(value)
    elif isinstance(tree, np.ndarray):
        assert tree.dtype.kind in "fiub"
    else:
        assert tree is None or type(tree) in (int, float, str, bool), type(tree)


def plain(rollout: Rollout) -> State:
    """Return a rollout as a tree of arrays."""
    names = ("obs", "action", "reward", "terminated", "truncated", "is_first", "weight", "extras", "recurrent_state")
    used = rollout.truncations.count
    cuts = rollout.truncations
    return {
        **{name: getattr(rollout, name) for name in names},
        "cuts": {"obs": cuts.obs[:used], "index": cuts.index[:used]},
    }


def rollout_of(data: State) -> Rollout:
    """Invert `plain`."""
    cuts = data.pop("cuts")
    return Rollout(**data, truncations=Truncations(cuts["obs"], cuts["index"], len(cuts["index"])))


def act(pipe: Connection, algorithm: str, env: str, options: dict[str, Any]) -> None:
    """Run an actor: pull weights, step, send rollouts. A learner is built only for its agent."""
    torch.set_num_threads(1)
    plan = Plan.make(algorithm, env, options)
    link = PipeLink(pipe)
    env_of_actor = plan.make_env(plan.options.num_envs)
    learner = plan.make_learner(env_of_actor.spec)
    agent, buffer = learner.agent(), learner.buffer()
    actor = Actor(env_of_actor, learner, agent, buffer, Clock(plan.options.total_timesteps))
    actor.reset(plan.seeds().child("env").integer())
    version, clock = link.pull(agent, 0)
    while not clock.done:
        buffer.add(actor.step())
        for rollout in buffer.batches(actor.clock):
            link.send(Chunk(0, version, {"steps": actor.clock.steps, **plain(rollout)}))
            version, clock = link.pull(agent, version)
