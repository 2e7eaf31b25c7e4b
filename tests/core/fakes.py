"""Small real parts for tests: learners on the public base class, and helpers to build and to compare.

Workers and fresh processes reach the learners by path: `TINY` is `…/fakes.py:Tiny`.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm, target_network
from rlplug_core.batches import Rollout, Samples, Transitions
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.checkpoint import Checkpoints
from rlplug_core.clock import Clock, due
from rlplug_core.config import Config, Count, Positive
from rlplug_core.estimators import gae
from rlplug_core.exploration import EpsilonGreedy
from rlplug_core.nets.modules import Critic, Policy, QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.plan import Plan
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.runners.build import build
from rlplug_core.schedules import constant, linear
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Result, Spec, State

HERE = Path(__file__).resolve()
TINY, TINY_EPOCHS, TINY_Q = (f"{HERE}:{name}" for name in ("Tiny", "TinyEpochs", "TinyQ"))
ENVS = "rlplug_core.testing.envs"


#: After how many more updates this process sends itself an interrupt; below 1 never.
countdown = [0]


def stop_if_told() -> None:
    """A signal between two batches, at a moment that a test chose."""
    countdown[0] -= 1
    if countdown[0] == 0:
        os.kill(os.getpid(), signal.SIGINT)


class Dicey(Chain):
    """Foreign code that draws from the process's own generators, in training and evaluation alike."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = super().move(action)
        return reward + np.random.random() + random.random() + float(torch.rand(())), terminated, truncated


@dataclass(frozen=True)
class TinyConfig(Config):
    """Options of Tiny."""

    steps: Count = 4  # rollout length per environment row
    lr: Positive = 1e-2  # step size
    rule: RuleName = "rmsprop"  # optimiser
    net: Net = Net(hidden=(8,))


class Tiny(Algorithm[Rollout]):
    """An actor-critic."""

    Config = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: TinyConfig

    def build(self) -> None:
        c = self.config
        self.policy, self.critic = Policy(self.spec, c.net), Critic(self.spec, c.net)
        self.optim = self.optimiser([self.policy, self.critic], linear(c.lr, 0.0), 0.5, OptimiserOptions().rule(c.rule))
        self.values = forward(self.critic, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting, log_prob=True)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.steps)

    def samples(self, batch: Rollout) -> Samples:
        advantage, target = gae(batch, *batch.values(self.values), 0.99, 0.95)
        return batch.samples(advantage, target, self.device)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        loss, metrics = self.loss(self.samples(batch))
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        stop_if_told()
        return Result(metrics)

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        value = (self.critic(batch.obs) - batch.target).square()
        loss = batch.mean(-log_prob * batch.advantage + 0.5 * value - 0.01 * entropy)
        return loss, {"loss/value": batch.mean(value.detach())}


class TinyEpochs(Tiny):
    """Several shuffled minibatches per rollout: draws from the learner's generator."""

    runners: ClassVar[tuple[str, ...]] = ("sync",)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        metrics: dict[str, Tensor] = {}
        for _ in range(2):
            for minibatch in self.samples(batch).minibatches(3, self.generator):
                loss, metrics = self.loss(minibatch)
                self.optim.minimise(loss, clock)
        stop_if_told()
        return Result(metrics)


@dataclass(frozen=True)
class TinyQConfig(Config):
    """Options of TinyQ: bursts of three updates every five steps."""

    capacity: Count = 40  # transitions kept
    n_step: Count = 2  # rewards summed
    every: Count = 5  # env steps between bursts
    updates: Count = 3  # gradient steps per burst
    target_every: Count = 7  # updates between copies to the target network
    net: Net = Net(hidden=(8,))


class TinyQ(Algorithm[Transitions]):
    """Q-learning with a target network."""

    Config = TinyQConfig
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: TinyQConfig

    def build(self) -> None:
        self.online = QNetwork(self.spec, self.config.net)
        self.target = target_network(self.online)
        self.optim = self.optimiser([self.online], constant(1e-2))

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        return EpsilonGreedy(self.online, linear(1.0, 0.1, 0.5), self.agent_seeds(rank), self.acting)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        return ReplayBuffer(c.capacity, Pace(4, c.every, c.updates, 10), c.n_step, 0.9, self.seeds.child("buffer"))

    def update(self, batch: Transitions, clock: Clock) -> Result:
        loss, metrics = self.loss(batch)
        self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            self.target.load_state_dict(self.online.state_dict())
        stop_if_told()
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        values = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs).amax(1)
        loss = batch.mean((values - target).square())
        return loss, {"loss/value": loss.detach()}


class TinyQAsync(TinyQ):
    """Under asynchronous workers, to have several batches due at once there."""

    runners: ClassVar[tuple[str, ...]] = ("async",)


class Seamless:
    """A learner that is its own, so that its gradients cannot be shared."""

    Config = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("async",)

    def __init__(self, spec: Spec, config: Any, context: Any) -> None:
        self.policy = Policy(spec, config.net)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, Seeds(0))

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(4)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        return Result({})


def make_runner(algorithm: str = TINY, env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    """A runner, as a session builds it."""
    plan = Plan.make(algorithm, env, {"seed": 3, "rows": 2, "total_steps": 200, **options})
    return build(plan, Clock(plan.options.total_steps))


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of nested dictionaries, lists and tuples, in order."""
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from leaves(tree[key])
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves(item)
    else:
        yield np.asarray(tree)


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a tree by path, tensors as arrays."""
    if isinstance(tree, Mapping):
        return {k: v for key, value in tree.items() for k, v in flat(value, f"{path}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {k: v for index, value in enumerate(tree) for k, v in flat(value, f"{path}/{index}").items()}
    return {path: tree.detach().numpy() if isinstance(tree, Tensor) else tree}


def assert_same(one: Any, other: Any) -> None:
    """Two trees are equal to the bit, types of arrays included."""
    ours, theirs = flat(one), flat(other)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, theirs[path], err_msg=path)
            assert value.dtype == theirs[path].dtype, path
        else:
            assert value == theirs[path], path


def stored(state: State) -> State:
    """A state after it went through a file."""
    with tempfile.TemporaryDirectory() as place:
        checkpoints = Checkpoints(Path(place))
        checkpoints.save("step", 1, {"state": state}, {})
        return checkpoints.load(["step"])[1]["state"]
