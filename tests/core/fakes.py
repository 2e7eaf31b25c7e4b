"""Small learners on the public base class, and helpers to build and compare.

Workers and fresh processes reach the learners by path: `TINY` is `…/fakes.py:Tiny`.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples, Transitions
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config.options import Config, Count, Positive
from rlplug_core.config.schedules import constant, linear
from rlplug_core.learning.estimators import gae
from rlplug_core.learning.optimizer_options import OptimizerName, OptimizerOptions
from rlplug_core.learning.targets import target_network
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.encoders import observation_norm
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import Running
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Result, Spec, State

HERE = Path(__file__).resolve()
TINY, TINY_EPOCHS, TINY_Q = (f"{HERE}:{name}" for name in ("Tiny", "TinyEpochs", "TinyQ"))
ENVS = "rlplug_core.testing.envs"
#: Every way to train in several processes.
RUNNERS: dict[str, dict[str, Any]] = {
    "async": {"runner": "async", "workers": 2},
    "decoupled": {"runner": "decoupled", "actors": 2},
    "learners": {"runner": "sync", "learners": 2},
}
#: A script with this line has a second thread, so rlplug does not fork it.
SECOND_THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"


#: The number of updates until this process interrupts itself; below 1 it does not.
countdown = [0]


def interrupt_at_zero() -> None:
    """Interrupt the process between two batches when the countdown ends."""
    countdown[0] -= 1
    if countdown[0] == 0:
        os.kill(os.getpid(), signal.SIGINT)


class GlobalRandomness(Chain):
    """Draws from the process's global generators, in training and in evaluation."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = super().move(action)
        return reward + np.random.random() + random.random() + float(torch.rand(())), terminated, truncated


@dataclass(frozen=True)
class TinyConfig(Config):
    """Options of Tiny."""

    n_steps: Count = 4  # rollout length per environment row
    learning_rate: Positive = 1e-2  # step size
    optimizer: OptimizerName = "rmsprop"  # optimizer
    net: Net = Net(hidden=(8,))


class Tiny(Algorithm[Rollout]):
    """An actor-critic."""

    Config = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: TinyConfig

    def build(self) -> None:
        c = self.config
        norm = observation_norm(self.spec.obs, c.net)
        self.policy = PolicyNetwork(self.spec, c.net, norm=norm)
        self.critic = Critic(self.spec, c.net, norm=norm)
        self.optim = self.optimizer(
            "actor_critic",
            [self.policy, self.critic],
            learning_rate=linear(c.learning_rate, 0.0),
            max_grad_norm=0.5,
            rule=OptimizerOptions().rule(c.optimizer),
        )
        self.values = fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend, log_prob=True)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.n_steps)

    def samples(self, batch: Rollout) -> Samples:
        advantage, target = gae(batch, *batch.values(self.values), 0.99, 0.95)
        return batch.samples(advantage, target, self.device)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        loss, metrics = self.loss(self.samples(batch))
        metrics["loss/gradient_norm"] = self.optim.minimize(loss, clock)
        interrupt_at_zero()
        return Result(metrics)

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        value = (self.critic(batch.obs) - batch.target).square()
        loss = batch.mean(-log_prob * batch.advantage + 0.5 * value - 0.01 * entropy)
        return loss, {"loss/value": batch.mean(value.detach())}


class TinySync(Tiny):
    """Unsound with a lag."""

    runners: ClassVar[tuple[str, ...]] = ("sync",)


class NegatesPolicy(Tiny):
    """Negates its policy when training ends."""

    def finish(self, clock: Clock) -> None:
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter.neg_()


class SlowCounter(Running):
    """Counts batches; waits between reading and writing."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def update_stats(self, batch: Any, clock: Clock) -> None:
        seen = float(self.count)
        time.sleep(0.005)  # lets another worker write in between
        self.count.fill_(seen + 1)


class Counting(Tiny):
    """Has running statistics."""

    def build(self) -> None:
        super().build()
        self.slow = SlowCounter()


class Drifting(Tiny):
    """Claims to be data parallel, but also changes weights by its own batch, without the optimizer."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        with torch.no_grad():
            self.policy.outputs.weight.add_(1e-3 * float(batch.action.mean()))
        return result


class OwnOptimizer(Tiny):
    """Trains one parameter with an optimizer of torch, which no runner knows."""

    def build(self) -> None:
        super().build()
        self.scale = nn.Parameter(torch.ones(()))
        self.adam = torch.optim.Adam([self.scale])


class Uneven(Tiny):
    """Claims to be data parallel, but takes one more gradient step in the first learner."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        for _ in range(2 - self.context.rank):
            result = super().learn(batch, now, clock)
        return result


class TinyEpochs(Tiny):
    """Several shuffled minibatches per rollout: draws from the learner's generator."""

    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = False

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        metrics: dict[str, Tensor] = {}
        for _ in range(2):
            for minibatch in self.samples(batch).minibatches(3, self.generator):
                loss, metrics = self.loss(minibatch)
                self.optim.minimize(loss, clock)
        interrupt_at_zero()
        return Result(metrics)


@dataclass(frozen=True)
class TinyQConfig(Config):
    """Options of TinyQ: bursts of three updates every five steps."""

    buffer_size: Count = 40  # transitions kept
    n_step: Count = 2  # rewards summed
    train_freq: Count = 5  # env steps between bursts
    gradient_steps: Count = 3  # gradient steps per burst
    target_update_interval: Count = 7  # updates between copies to the target network
    net: Net = Net(hidden=(8,))


class TinyQ(Algorithm[Transitions]):
    """Q-learning with a target network."""

    Config = TinyQConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: TinyQConfig

    def build(self) -> None:
        self.online = QNetwork(self.spec, self.config.net)
        self.target = target_network(self.online)
        self.optim = self.optimizer("online", [self.online], learning_rate=constant(1e-2))

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        return EpsilonGreedy(self.online, linear(1.0, 0.1, 0.5), self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        return ReplayBuffer(
            c.buffer_size,
            ReplaySchedule(4, c.train_freq, c.gradient_steps, 10),
            c.n_step,
            0.9,
            self.seeds.child("buffer"),
        )

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        loss, metrics = self.loss(batch)
        self.optim.minimize(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_update_interval):
            self.target.load_state_dict(self.online.state_dict())
        interrupt_at_zero()
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        values = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs).amax(1)
        loss = batch.mean((values - target).square())
        return loss, {"loss/value": loss.detach()}


class TinyQAsync(TinyQ):
    """With asynchronous workers, which then get several batches at once."""

    runners: ClassVar[tuple[str, ...]] = ("async",)


class OwnLearner:
    """A learner that does not inherit `Algorithm`, so its gradients cannot be shared."""

    Config = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("async",)

    def __init__(self, spec: Spec, config: Any, context: Any) -> None:
        self.policy = PolicyNetwork(spec, config.net)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, Seeds(0))

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(4)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None: ...

    def update(self, batch: Rollout, clock: Clock) -> Result:
        return Result({})


def make_runner(algorithm: str = TINY, env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    """Build a runner as a session does."""
    plan = Plan.make(algorithm, env, {"seed": 3, "num_envs": 2, "total_timesteps": 200, **options})
    return build(plan, Clock(plan.options.total_timesteps))


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of nested dictionaries, lists and tuples in order."""
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from leaves(tree[key])
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves(item)
    else:
        yield np.asarray(tree)


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by path, tensors as arrays."""
    if isinstance(tree, Mapping):
        return {k: v for key, value in tree.items() for k, v in flat(value, f"{path}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {k: v for index, value in enumerate(tree) for k, v in flat(value, f"{path}/{index}").items()}
    return {path: tree.detach().numpy() if isinstance(tree, Tensor) else tree}


def assert_same(actual: Any, expected: Any) -> None:
    """Assert that two trees are equal exactly, including dtypes."""
    ours, theirs = flat(actual), flat(expected)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, theirs[path], err_msg=path)
            assert value.dtype == theirs[path].dtype, path
        else:
            assert value == theirs[path], path


def save_and_load(state: State) -> State:
    """Save a state to a file and load it again."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        checkpoints.save("step", 1, {"state": state}, {})
        return checkpoints.load(["step"])[1]["state"]
