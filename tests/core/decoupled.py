"""An actor and a learner in two processes, by the `Link` protocol over a pipe: what crosses is plain arrays."""

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
    """Both ends of a link over one pipe; every message is checked to hold nothing but numbers, names and arrays."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.version, self.clock = pipe, 0, Clock(1)

    def publish(self, weights: State) -> None:
        """A new version of the weights, with the time it was made at."""
        self.version += 1
        plain = {name: tensor.detach().numpy().copy() for name, tensor in weights.items()}
        self._send({"version": self.version, "weights": plain, "clock": self.clock.state_dict()})

    def pull(self, agent: Agent, seen: int) -> tuple[int, Clock]:
        """Wait for a version after `seen`, put it into the agent's weights, say which it is and what time it is."""
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
    """Nothing but dictionaries, arrays of numbers, numbers and strings."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            assert isinstance(key, str)
            check_plain(value)
    elif isinstance(tree, np.ndarray):
        assert tree.dtype.kind in "fiub"
    else:
        assert tree is None or type(tree) in (int, float, str, bool), type(tree)


def plain(rollout: Rollout) -> State:
    """A rollout as a tree of arrays."""
    names = ("obs", "action", "reward", "terminated", "truncated", "is_first", "weight", "extras", "recurrent_state")
    used, cuts = rollout.truncations.count, rollout.truncations
    return {
        **{name: getattr(rollout, name) for name in names},
        "cuts": {"obs": cuts.obs[:used], "index": cuts.index[:used]},
    }


def rollout_of(data: State) -> Rollout:
    """The inverse of `plain`."""
    cuts = data.pop("cuts")
    return Rollout(**data, truncations=Truncations(cuts["obs"], cuts["index"], len(cuts["index"])))


def act(pipe: Connection, algorithm: str, env: str, options: dict[str, Any]) -> None:
    """The actor's process: pulls weights, steps, sends whole rollouts; a learner is there to build the agent from."""
    torch.set_num_threads(1)
    plan, link = Plan.make(algorithm, env, options), PipeLink(pipe)
    made = plan.make_env(plan.options.num_envs)
    learner = plan.make_learner(made.spec)
    agent, buffer = learner.agent(), learner.buffer()
    actor = Actor(made, learner, agent, buffer, Clock(plan.options.total_timesteps))
    actor.reset(plan.seeds().child("env").integer())
    version, clock = link.pull(agent, 0)
    while not clock.done:
        buffer.add(actor.step())
        for rollout in buffer.batches(actor.clock):
            link.send(Chunk(0, version, {"steps": actor.clock.steps, **plain(rollout)}))
            version, clock = link.pull(agent, version)
