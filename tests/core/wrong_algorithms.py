"""A right, tiny algorithm, and many with one defect each, for one check of the conformance kit each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.arrays import to_host
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config, Count, NonNegative, Positive, log
from rlplug_core.config.schedules import constant
from rlplug_core.context import Context
from rlplug_core.errors import UsageError
from rlplug_core.learning.estimators import gae
from rlplug_core.learning.update_rules import RMSProp
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import MASK, Act, Array, Obs, RecurrentState, Result, Spec, State, Step


@dataclass(frozen=True)
class TinyConfig(Config):
    """Options of the tiny algorithm."""

    n_steps: Count = 4  # rollout length
    learning_rate: Positive = 0.01  # step size
    ent_coef: NonNegative = 0.01  # weight of the entropy bonus

    search = {"learning_rate": log(1e-4, 1e-1)}


class Tiny(Algorithm[Rollout]):
    """Advantage actor-critic with eight hidden units; nothing is wrong with it."""

    Config: ClassVar[type[Config]] = TinyConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: TinyConfig
    sign = 1.0

    def build(self) -> None:
        net = Net(hidden=(8,))
        self.policy = PolicyNetwork(self.spec, net)
        self.critic = Critic(self.spec, net)
        self.optim = self.optimizer(
            "actor_critic",
            [self.policy, self.critic],
            learning_rate=constant(self.config.learning_rate),
            max_grad_norm=0.5,
            rule=RMSProp(),
        )
        self.values = fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.n_steps)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        advantage, target = gae(batch, value, successor, 0.99, 0.95)
        loss = self.loss(batch.samples(advantage, target, self.device))[0]
        norm = self.optim.minimize(loss, clock)
        return Result({"loss/total": loss.detach(), "loss/gradient_norm": norm})

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        value = (self.critic(batch.obs) - batch.target).square()
        policy = -self.sign * log_prob * batch.advantage
        return self.mean(batch, policy + value - self.config.ent_coef * entropy), {}

    def mean(self, batch: Samples, value: Tensor) -> Tensor:
        return batch.mean(value)


# Static


@dataclass(frozen=True)
class ReservedConfig(TinyConfig):
    seed: Count = 1  # taken


class Reserved(Tiny):
    Config = ReservedConfig


@dataclass(frozen=True)
class NoDefaultConfig(Config):
    learning_rate: float  # step size


class NoDefault(Tiny):
    Config = NoDefaultConfig


@dataclass(frozen=True)
class WrongDefaultConfig(TinyConfig):
    n_steps: Count = 0  # rollout length


class WrongDefault(Tiny):
    Config = WrongDefaultConfig


@dataclass(frozen=True)
class UnknownSearchConfig(TinyConfig):
    search = {"lr": log(1e-4, 1e-1)}


class UnknownSearch(Tiny):
    Config = UnknownSearchConfig


@dataclass(frozen=True)
class WideSearchConfig(TinyConfig):
    search = {"ent_coef": log(-1, 1)}


class WideSearch(Tiny):
    Config = WideSearchConfig


@dataclass(frozen=True)
class NoHelpConfig(TinyConfig):
    beta: float = 1.0


class NoHelp(Tiny):
    Config = NoHelpConfig


class UnknownRunner(Tiny):
    runners = ("synchronous",)


# Acting


class RaisesAttributeError(Tiny):
    """Raises AttributeError instead of UsageError for continuous actions."""

    def build(self) -> None:
        self.choices = self.spec.action.n  # type: ignore[attr-defined]
        super().build()


class UndeclaredActions(Tiny):
    """Accepts continuous actions but does not declare it."""

    actions = ("Discrete",)

    def _check_spaces(self) -> None:
        pass


class NoFeedback(Tiny):
    """Its buffer lacks a method."""

    def buffer(self) -> RolloutBuffer:
        buffer = super().buffer()
        buffer.feedback = None  # type: ignore[assignment, method-assign]
        return buffer


class AlwaysExploringAgent(PolicyAgent):
    def act(self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock) -> Act:  # type: ignore[override]
        return super().act(obs, is_first, recurrent_state, clock)


class NoExploreArgument(Tiny):
    """Its agent does not take `explore`."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return AlwaysExploringAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ChangedAgent(PolicyAgent):
    """Acts like the right agent, then applies `change`."""

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return self.change(super().act(obs, is_first, recurrent_state, clock, explore))

    def change(self, act: Act) -> Act:
        raise NotImplementedError


class FloatAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action.astype(np.float32))


class FloatActions(Tiny):
    """Returns discrete actions as floats."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return FloatAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ColumnAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action[:, None])


class ColumnActions(Tiny):
    """Returns actions with one dimension too many."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return ColumnAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class FlatExtrasAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action, None, {"temperature": np.ones(())})


class FlatExtras(Tiny):
    """Returns an extra without rows."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return FlatExtrasAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class MaskIgnoringAgent(PolicyAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        if isinstance(obs, dict) and MASK in obs:
            obs = {**obs, MASK: np.ones_like(obs[MASK])}
        return super().act(obs, is_first, recurrent_state, clock, explore)


class IgnoresMasks(Tiny):
    """Ignores action masks."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return MaskIgnoringAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


# Learning


class NoBatchesBuffer(RolloutBuffer):
    def batches(self, clock: Clock) -> Iterable[Rollout]:
        self.position %= self.steps
        return ()


class NoBatches(Tiny):
    """Never has a batch."""

    def buffer(self) -> RolloutBuffer:
        return NoBatchesBuffer(4)


class Ungrouped(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        return Result({"loss": super().learn(batch, now, clock).metrics["loss/total"]})


class ReservedMetric(Tiny):
    """Writes a metric that belongs to the run."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"eval/return_mean": 1.0})


class InfiniteMetric(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"loss/total": float("inf")})


class KeepsGraphs(Tiny):
    """Returns metrics with their autograd graphs."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"loss/bias": self.critic.output.bias.square().sum()})


class ChangesClock(Tiny):
    """Changes the count of updates."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        clock.updates += 1
        return super().learn(batch, now, clock)


class LeavesThread(Tiny):
    """Leaves a thread running."""

    stop: ClassVar[threading.Event] = threading.Event()

    def build(self) -> None:
        super().build()
        threading.Thread(target=self.stop.wait, name="left behind", daemon=True).start()


class CountsAbsent(Tiny):
    """Counts rows without a transition."""

    def mean(self, batch: Samples, value: Tensor) -> Tensor:
        return torch.dot(torch.where(batch.weight == 0, 1.0, batch.weight), value) / len(value)


class TrainsOnAbsentRows(Tiny):
    """Treats a row that is absent within an episode as a step."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        advantage, target = gae(replace(batch, whole=True), *batch.values(self.values), 0.99, 0.95)
        loss = self.loss(batch.samples(advantage, target, self.device))[0]
        return Result({"loss/gradient_norm": self.optim.minimize(loss, clock)})


class DividesByWeights(Tiny):
    """Divides by the sum of the weights."""

    def mean(self, batch: Samples, value: Tensor) -> Tensor:
        return torch.dot(batch.weight, value) / batch.weight.sum().clamp(min=1e-8)


class PlainMean(Tiny):
    """Its second optimizer ignores the weights of the batch."""

    def build(self) -> None:
        super().build()
        rate = constant(self.config.learning_rate)
        self.optim = self.optimizer("critic", [self.critic], learning_rate=rate, rule=RMSProp())
        self.policy_optim = self.optimizer("policy", [self.policy], learning_rate=rate, rule=RMSProp())

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        advantage, target = gae(batch, *batch.values(self.values), 0.99, 0.95)
        samples = batch.samples(advantage, target, self.device)
        error = samples.mean((self.critic(samples.obs) - samples.target).square())
        norm = self.optim.minimize(error, clock)
        log_prob, _ = self.policy.head.log_prob_and_entropy(self.policy(samples.obs), samples.action)
        self.policy_optim.minimize(-(log_prob * samples.advantage).mean(), clock)
        return Result({"loss/total": error.detach(), "loss/gradient_norm": norm})


class NeedsAge(Tiny):
    """Right, but only for vectors of six numbers, which a wrapper of the chain gives; its buffer refuses others."""

    def buffer(self) -> RolloutBuffer:
        if self.spec.obs.shape != (6,):
            raise UsageError("NeedsAge takes observations of six numbers")
        return super().buffer()


class ZeroTable(Tiny):
    """Right: Q-learning on a table of eight bins of observations, which starts at 0; its policy never learns."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete",)

    def build(self) -> None:
        if len(self.spec.obs.shape or ()) != 1:
            raise UsageError("ZeroTable takes vectors")
        super().build()
        self.register_buffer("table", torch.zeros(8, int(self.spec.action.n), dtype=torch.float64))

    def _bins(self, obs: Array) -> Array:
        width = obs.shape[-1]
        return (np.abs(np.sin(12.9 * (obs.reshape(-1, width) @ np.arange(1, width + 1)))) * 8).astype(int) % 8

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        table = self.table.numpy()
        _, successor = batch.values(lambda obs: table[self._bins(obs)].max(1))
        target = batch.reward + 0.9 * ~batch.terminated * successor
        at = self._bins(batch.obs[:-1]), batch.action.reshape(-1)
        error = np.where(batch.weight > 0, batch.weight * (target - table[at].reshape(target.shape)), 0)
        np.add.at(table, at, 0.1 * error.reshape(-1))
        return Result({"loss/error": float(np.abs(error).mean())})


class LateCopyBuffer(RolloutBuffer):
    """Copies steps only when the rollout is full; copies masks at once, so that only one check fails."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.references: list[Step] = []

    def add(self, step: Step, source: int = 0) -> None:
        if isinstance(step.obs, dict):
            super().add(step)
        else:
            self.references.append(step)

    def batches(self, clock: Clock) -> Iterable[Rollout]:
        if len(self.references) == self.steps:
            for step in self.references:
                super().add(step)
            self.references = []
        return super().batches(clock)

    def state_dict(self) -> State:
        if not self.references:
            return super().state_dict()
        kept = RolloutBuffer(self.steps)
        for step in self.references:
            kept.add(step)
        return kept.state_dict()

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.references = []
        if self.rollout is not None and not isinstance(self.rollout.obs, dict):
            self.references = list(_steps(self.rollout, self.position))
            self.position = 0
            self.rollout = None


def _steps(rollout: Rollout, count: int) -> Iterator[Step]:
    """Yield the steps of an unfinished rollout, with the fields that the buffer reads."""
    finals = {
        int(at): rollout.truncations.obs[n]
        for n, at in enumerate(rollout.truncations.index[: rollout.truncations.count])
    }
    num_envs = rollout.reward.shape[1]
    for t in range(count):
        following = rollout.obs[t + 1].copy()
        for row in range(num_envs):
            following[row] = finals.get(t * num_envs + row, following[row])
        ended = bool((rollout.terminated[t] | rollout.truncated[t]).any())
        yield Step(
            rollout.obs[t],
            rollout.action[t],
            rollout.reward[t],
            following,
            rollout.terminated[t],
            rollout.truncated[t],
            rollout.is_first[t],
            rollout.weight[t] > 0,
            ended,
            {},
            None,
        )


class KeepsReferences(Tiny):
    """Stores arrays of the environment instead of copies."""

    def buffer(self) -> RolloutBuffer:
        return LateCopyBuffer(self.config.n_steps)


class BootstrapsFromReset(Tiny):
    """Bootstraps truncated steps from the first observation of the next episode."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.truncations.count = 0
        return super().learn(batch, now, clock)


class TerminatesMostTruncations(Tiny):
    """Treats a time limit as a termination, except at the last step of a rollout."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.terminated[:-1] |= batch.truncated[:-1]
        return super().learn(batch, now, clock)


class RelabelingBuffer(RolloutBuffer):
    """Treats all ends as ends of one kind."""

    terminates: ClassVar[bool]
    takes_tensors = False

    def add(self, step: Step, source: int = 0) -> None:
        ended = step.terminated | step.truncated
        never = np.zeros_like(step.terminated)
        terminated, truncated = (ended, never) if self.terminates else (never, ended)
        super().add(replace(step, terminated=terminated, truncated=truncated), source)


class TerminatingBuffer(RelabelingBuffer):
    terminates = True


class TruncatingBuffer(RelabelingBuffer):
    terminates = False


class TerminatesTruncations(Tiny):
    """Treats a time limit as a termination."""

    def buffer(self) -> RolloutBuffer:
        return TerminatingBuffer(self.config.n_steps)


class TruncatesTerminations(Tiny):
    """Treats a termination as a time limit."""

    def buffer(self) -> RolloutBuffer:
        return TruncatingBuffer(self.config.n_steps)


class BootstrapsTerminations(Tiny):
    """Bootstraps terminations from the first observation of the next episode."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        never = batch.terminated & ~batch.terminated
        ended = batch.terminated | batch.truncated
        return super().learn(replace(batch, terminated=never, truncated=ended), now, clock)


# Randomness and state


class Unseeded(Tiny):
    """Its agents draw from the operating system."""

    def agent_seeds(self, rank: int) -> Seeds:
        return Seeds(int.from_bytes(os.urandom(4), "big"))


class IgnoresSeed(Tiny):
    """Ignores the seed."""

    def __init__(self, spec: Spec, config: Any, context: Context) -> None:
        super().__init__(spec, config, replace(context, seeds=Seeds(0)))


class SharedGeneratorAgent(PolicyAgent):
    """Draws one number at a time from a shared generator."""

    generator: np.random.Generator

    use_tensors = None  # type: ignore[assignment]  # `act` computes in NumPy

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        outputs = self.forward(obs)
        if not explore:
            return Act(self.head.mode(outputs))
        return Act(self.head.sample(outputs, self.noise(self.generator, (1, len(is_first)))[0]))

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


class SharesGenerator(Tiny):
    """All its agents draw from one generator."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        agent = SharedGeneratorAgent(self.policy, self.agent_seeds(rank), self.inference_backend)
        agent.generator = self.__dict__.setdefault("drawn", self.agent_seeds(0).generator())
        return agent


class SameRanks(Tiny):
    """Its agents explore alike at every rank."""

    def agent_seeds(self, rank: int) -> Seeds:
        return super().agent_seeds(0)


class CopiesWeights(Tiny):
    """Its agents keep their first weights, except the one of rank 0."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        if rank == 0:
            return super().agent(rank, ranks)
        policy = PolicyNetwork(self.spec, Net(hidden=(8,)))
        policy.load_state_dict(self.policy.state_dict())
        return PolicyAgent(policy, self.agent_seeds(rank), self.inference_backend)


class ReallocatesWeights(Tiny):
    """Gives its parameters new memory after each update; views of the old memory are stale."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        for parameter in self.policy.parameters():
            parameter.data = parameter.data.clone()
        return result


class AgeAgent(PolicyAgent):
    """Remembers the age of the episode, and prefers the first action more with age."""

    use_tensors = None  # type: ignore[assignment]  # `act` computes in NumPy

    def initial(self, num_envs: int) -> RecurrentState:
        super().initial(num_envs)
        return np.zeros(num_envs, np.float32)

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        age = np.where(is_first, np.float32(0), recurrent_state)
        outputs = self.forward(obs).copy()
        outputs[:, 0] += 0.1 * age
        return self.choose(outputs, age + 1, explore)


class HasMemory(Tiny):
    """Right: its agents have a memory."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return AgeAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class NeverResetAgent(AgeAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, np.zeros_like(is_first), recurrent_state, clock, explore)


class CarriesMemoryOver(Tiny):
    """Its agents carry their memory over to the next episode."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return NeverResetAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class CountsLoads(Tiny):
    """Its state counts how often it was loaded."""

    loads = 0

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "loads": self.loads}

    def set_extra_state(self, state: State) -> None:
        super().set_extra_state(state)
        self.loads = state["loads"] + 1


class CountsRows(Tiny):
    """Has state for every row, which an evaluation with another number of rows cannot load."""

    def build(self) -> None:
        super().build()
        self.register_buffer("rows", torch.zeros(self.spec.num_envs))


class SetInState(Tiny):
    """Its state holds a set, which no checkpoint can store."""

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "seen": {1, 2}}


class UnsavedCount(Tiny):
    """Divides rewards by the number of updates, which it does not save."""

    count = 0

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        self.count += 1
        batch.reward /= self.count
        return super().learn(batch, now, clock)


class TwiceBuffer(RolloutBuffer):
    def batches(self, clock: Clock) -> Iterator[Rollout]:
        for batch in super().batches(clock):
            yield batch
            yield batch


class LosesBatches(Tiny):
    """Its buffer returns each rollout twice; a stop in between loses the second."""

    def buffer(self) -> RolloutBuffer:
        return TwiceBuffer(self.config.n_steps)


class DependsOnProcess(Tiny):
    """Its updates depend on the process."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.reward += os.getpid()
        return super().learn(batch, now, clock)


class CountingAgent(PolicyAgent):
    learner: LearnsFromActs

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        self.learner.acts.add_(1)
        return super().act(obs, is_first, recurrent_state, clock, explore)


class LearnsFromActs(Tiny):
    """Learns from how often its agents acted, including evaluations."""

    def build(self) -> None:
        super().build()
        self.register_buffer("acts", torch.zeros(()))

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        agent = CountingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)
        agent.learner = self
        return agent


class ChangingAgent(PolicyAgent):
    """Explores in evaluations, and no two agents act alike there."""

    count: ClassVar[int] = 0

    def __init__(self, policy: PolicyNetwork, seeds: Seeds, inference_backend: str) -> None:
        ChangingAgent.count += 1
        self.number = ChangingAgent.count
        super().__init__(policy, seeds, inference_backend)

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        act = super().act(obs, is_first, recurrent_state, clock)
        if not explore and not isinstance(obs, dict):
            act.action = np.roll(act.action, self.number, axis=0)
        return act


class ChangingEvaluation(Tiny):
    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return ChangingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class OwnSteps(Tiny):
    """Lists async, but changes its parameters without the optimizer."""

    def build(self) -> None:
        net = Net(hidden=(8,))
        self.policy = PolicyNetwork(self.spec, net)
        self.critic = Critic(self.spec, net)
        self.values = fast_forward(self.critic, self.inference_backend)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        loss = self.loss(batch.samples(*gae(batch, value, successor, 0.99, 0.95), self.device))[0]
        parameters = list(self.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(0.01 * gradient)
        return Result({"loss/total": loss.detach()})


class DependsOnRunner(Tiny):
    """Learns differently from decoupled actors, even without a lag."""

    def build(self) -> None:
        super().build()
        self.sign = -1.0 if self.context.runner == "decoupled" else 1.0


# Tensors on a device


class CopyingAgent(PolicyAgent):
    """Copies observations to the host and back."""

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        if isinstance(obs, Tensor):
            obs = torch.from_numpy(obs.cpu().numpy())
        return super().act(obs, is_first, recurrent_state, clock, explore)


class CopiesToAct(Tiny):
    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return CopyingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ArrayAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(np.asarray(act.action))


class ActsInArrays(Tiny):
    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return ArrayAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class CopyingBuffer(RolloutBuffer):
    """Claims to take tensors, and reads each of them on the host."""

    def add(self, step: Step, source: int = 0) -> None:
        to_host(step.reward)
        super().add(step, source)


class CopiesToStore(Tiny):
    def buffer(self) -> RolloutBuffer:
        return CopyingBuffer(self.config.n_steps)


class CopiesToLearn(Tiny):
    """Converts rewards to an array, which only tensors on the CPU allow."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        return Result({**result.metrics, "reward/mean": float(np.asarray(batch.reward).mean())})


class LearnsFromArrays(Tiny):
    """Uses a method that tensors lack, and does not refuse tensors."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        return super().learn(replace(batch, reward=batch.reward.astype(np.float32)), now, clock)


# Learning


class WrongSign(Tiny):
    """Makes good actions less likely, in environments of one kind."""

    def build(self) -> None:
        super().build()
        self.sign = -1.0 if self.reverses(self.spec) else 1.0

    def reverses(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Discrete) and spec.obs.shape == (5,)


class WrongSignInContinuous(WrongSign):
    def reverses(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Box)


class WrongSignWithMasks(WrongSign):
    def reverses(self, spec: Spec) -> bool:
        return isinstance(spec.obs, spaces.Dict)


class WrongSignInOneState(WrongSign):
    def reverses(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Discrete) and spec.obs.shape == (1,)
