"""One right, tiny algorithm and many that differ from it in one defect, each for one check of the conformance kit."""

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
        self.policy, self.critic = PolicyNetwork(self.spec, net), Critic(self.spec, net)
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
class StraySearchConfig(TinyConfig):
    search = {"lr": log(1e-4, 1e-1)}


class StraySearch(Tiny):
    Config = StraySearchConfig


@dataclass(frozen=True)
class WideSearchConfig(TinyConfig):
    search = {"ent_coef": log(-1, 1)}


class WideSearch(Tiny):
    Config = WideSearchConfig


@dataclass(frozen=True)
class SilentConfig(TinyConfig):
    beta: float = 1.0


class Silent(Tiny):
    Config = SilentConfig


class UnknownRunner(Tiny):
    runners = ("synchronous",)


# Acting


class Stumbles(Tiny):
    """Raises something else than UsageError for continuous actions."""

    def build(self) -> None:
        self.choices = self.spec.action.n  # type: ignore[attr-defined]
        super().build()


class Overstates(Tiny):
    """Accepts continuous actions and does not say so."""

    actions = ("Discrete",)

    def _check_spaces(self) -> None:
        pass


class Mute(Tiny):
    """Its buffer lacks a method."""

    def buffer(self) -> RolloutBuffer:
        buffer = super().buffer()
        buffer.feedback = None  # type: ignore[assignment, method-assign]
        return buffer


class KeenAgent(PolicyAgent):
    def act(self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock) -> Act:  # type: ignore[override]
        return super().act(obs, is_first, recurrent_state, clock)


class Keen(Tiny):
    """Its agent cannot be asked not to explore."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return KeenAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ChangedAgent(PolicyAgent):
    """Acts like the right one, then `change` has its way."""

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return self.change(super().act(obs, is_first, recurrent_state, clock, explore))

    def change(self, act: Act) -> Act:
        raise NotImplementedError


class FloatAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action.astype(np.float32))


class Floats(Tiny):
    """Discrete actions as floats."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return FloatAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class ColumnAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action[:, None])


class Columns(Tiny):
    """Actions with one dimension too many."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return ColumnAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class FlatExtrasAgent(ChangedAgent):
    def change(self, act: Act) -> Act:
        return Act(act.action, None, {"temperature": np.ones(())})


class FlatExtras(Tiny):
    """Sends along what has no rows."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return FlatExtrasAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class BlindAgent(PolicyAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        if isinstance(obs, dict) and MASK in obs:
            obs = {**obs, MASK: np.ones_like(obs[MASK])}
        return super().act(obs, is_first, recurrent_state, clock, explore)


class Blind(Tiny):
    """Does not look at action masks."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return BlindAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


# Learning


class HoardingBuffer(RolloutBuffer):
    def batches(self, clock: Clock) -> Iterable[Rollout]:
        self.position %= self.steps
        return ()


class Hoards(Tiny):
    """Never has a batch."""

    def buffer(self) -> RolloutBuffer:
        return HoardingBuffer(4)


class Ungrouped(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        return Result({"loss": super().learn(batch, now, clock).metrics["loss/total"]})


class Squats(Tiny):
    """Uses a metric of the run."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"eval/return_mean": 1.0})


class Infinite(Tiny):
    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"loss/total": float("inf")})


class Graphic(Tiny):
    """Keeps the graphs of its metrics."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        super().learn(batch, now, clock)
        return Result({"loss/bias": self.critic.output.bias.square().sum()})


class OwnTime(Tiny):
    """Counts updates itself."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        clock.updates += 1
        return super().learn(batch, now, clock)


class Leaves(Tiny):
    """Leaves a thread behind."""

    stop: ClassVar[threading.Event] = threading.Event()

    def build(self) -> None:
        super().build()
        threading.Thread(target=self.stop.wait, name="left behind", daemon=True).start()


class CountsAbsent(Tiny):
    """Lets rows without a transition count like others."""

    def mean(self, batch: Samples, value: Tensor) -> Tensor:
        return torch.dot(torch.where(batch.weight == 0, 1.0, batch.weight), value) / len(value)


class TakesPauses(Tiny):
    """Takes a row that was absent within an episode for a step of it."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        advantage, target = gae(replace(batch, whole=True), *batch.values(self.values), 0.99, 0.95)
        loss = self.loss(batch.samples(advantage, target, self.device))[0]
        return Result({"loss/gradient_norm": self.optim.minimize(loss, clock)})


class Normalized(Tiny):
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
    """Right, but only for vectors of six numbers, which a wrapper makes of a chain; the buffer refuses others."""

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


class ReferringBuffer(RolloutBuffer):
    """Copies only when the rollout is full; with masks at once, or more than one check would fail."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.referred: list[Step] = []

    def add(self, step: Step, source: int = 0) -> None:
        if isinstance(step.obs, dict):
            super().add(step)
        else:
            self.referred.append(step)

    def batches(self, clock: Clock) -> Iterable[Rollout]:
        if len(self.referred) == self.steps:
            for step in self.referred:
                super().add(step)
            self.referred = []
        return super().batches(clock)

    def state_dict(self) -> State:
        if not self.referred:
            return super().state_dict()
        kept = RolloutBuffer(self.steps)
        for step in self.referred:
            kept.add(step)
        return kept.state_dict()

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.referred = []
        if self.rollout is not None and not isinstance(self.rollout.obs, dict):
            self.referred = list(_steps(self.rollout, self.position))
            self.position, self.rollout = 0, None


def _steps(rollout: Rollout, count: int) -> Iterator[Step]:
    """The steps of an unfinished rollout again, as far as the buffer reads them."""
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
            rollout.obs[t], rollout.action[t], rollout.reward[t], following, rollout.terminated[t],
            rollout.truncated[t], rollout.is_first[t], rollout.weight[t] > 0, ended, {}, None,
        )  # fmt: skip


class Refers(Tiny):
    """Keeps arrays of the environment instead of copies."""

    def buffer(self) -> RolloutBuffer:
        return ReferringBuffer(self.config.n_steps)


class NextEpisode(Tiny):
    """Takes the value of what the next episode opens with for that of a truncated step's successor."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.truncations.count = 0
        return super().learn(batch, now, clock)


class CutsMostShort(Tiny):
    """Takes a time limit for a termination, but for the last step of a rollout."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.terminated[:-1] |= batch.truncated[:-1]
        return super().learn(batch, now, clock)


class RelabelingBuffer(RolloutBuffer):
    """Takes all ends for ends of one kind."""

    terminates: ClassVar[bool]
    takes_tensors = False

    def add(self, step: Step, source: int = 0) -> None:
        ended, never = step.terminated | step.truncated, np.zeros_like(step.terminated)
        terminated, truncated = (ended, never) if self.terminates else (never, ended)
        super().add(replace(step, terminated=terminated, truncated=truncated), source)


class TerminatingBuffer(RelabelingBuffer):
    terminates = True


class TruncatingBuffer(RelabelingBuffer):
    terminates = False


class CutsShort(Tiny):
    """Takes a time limit for a termination."""

    def buffer(self) -> RolloutBuffer:
        return TerminatingBuffer(self.config.n_steps)


class GoesOn(Tiny):
    """Takes a termination for a time limit."""

    def buffer(self) -> RolloutBuffer:
        return TruncatingBuffer(self.config.n_steps)


class GoesOnElsewhere(Tiny):
    """Bootstraps after a termination, with the value of what the next episode opens with."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        never = batch.terminated & ~batch.terminated
        ended = batch.terminated | batch.truncated
        return super().learn(replace(batch, terminated=never, truncated=ended), now, clock)


# Randomness and state


class Unseeded(Tiny):
    """Its agents draw from the operating system."""

    def agent_seeds(self, rank: int) -> Seeds:
        return Seeds(int.from_bytes(os.urandom(4), "big"))


class Deaf(Tiny):
    """Takes no notice of the seed."""

    def __init__(self, spec: Spec, config: Any, context: Context) -> None:
        super().__init__(spec, config, replace(context, seeds=Seeds(0)))


class BorrowingAgent(PolicyAgent):
    """Draws one by one from a generator that is not its own."""

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


class Borrows(Tiny):
    """All its agents draw from one generator."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        agent = BorrowingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)
        agent.generator = self.__dict__.setdefault("drawn", self.agent_seeds(0).generator())
        return agent


class SameRanks(Tiny):
    """Its agents explore alike, whatever their rank."""

    def agent_seeds(self, rank: int) -> Seeds:
        return super().agent_seeds(0)


class Copies(Tiny):
    """Its agents keep the weights with which they were made, but for the one that acts."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        if rank == 0:
            return super().agent(rank, ranks)
        policy = PolicyNetwork(self.spec, Net(hidden=(8,)))
        policy.load_state_dict(self.policy.state_dict())
        return PolicyAgent(policy, self.agent_seeds(rank), self.inference_backend)


class Reallocates(Tiny):
    """Gives its parameters new memory after each update; who holds views of the old acts on what it was."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        for parameter in self.policy.parameters():
            parameter.data = parameter.data.clone()
        return result


class AgeingAgent(PolicyAgent):
    """Remembers the age of the episode, and likes its first choice the more the longer it lasts."""

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


class Remembers(Tiny):
    """Its agents have a memory; nothing is wrong with it."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return AgeingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class NostalgicAgent(AgeingAgent):
    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        return super().act(obs, np.zeros_like(is_first), recurrent_state, clock, explore)


class Nostalgic(Tiny):
    """Its agents take what they remember along into the next episode."""

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return NostalgicAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class CountsLoads(Tiny):
    """Its state says how often it was loaded."""

    loads = 0

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "loads": self.loads}

    def set_extra_state(self, state: State) -> None:
        super().set_extra_state(state)
        self.loads = state["loads"] + 1


class CountsRows(Tiny):
    """Keeps something of every row in its own state, which an evaluation with other rows cannot load."""

    def build(self) -> None:
        super().build()
        self.register_buffer("rows", torch.zeros(self.spec.num_envs))


class Unwritable(Tiny):
    """Its state holds what no checkpoint can."""

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "seen": {1, 2}}


class Forgets(Tiny):
    """Counts its updates, steps less from one to the next, and does not save the count."""

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
    """Its buffer gives each rollout twice; stopped in between, it forgets the second."""

    def buffer(self) -> RolloutBuffer:
        return TwiceBuffer(self.config.n_steps)


class Rooted(Tiny):
    """Its updates depend on the process they are made in."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        batch.reward += os.getpid()
        return super().learn(batch, now, clock)


class WatchingAgent(PolicyAgent):
    learner: Watches

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        self.learner.acts.add_(1)
        return super().act(obs, is_first, recurrent_state, clock, explore)


class Watches(Tiny):
    """Learns from how often its agents acted, evaluation included."""

    def build(self) -> None:
        super().build()
        self.register_buffer("acts", torch.zeros(()))

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        agent = WatchingAgent(self.policy, self.agent_seeds(rank), self.inference_backend)
        agent.learner = self
        return agent


class RestlessAgent(PolicyAgent):
    """Explores in evaluations, too, and no two agents act alike there."""

    made: ClassVar[int] = 0

    def __init__(self, policy: PolicyNetwork, seeds: Seeds, inference_backend: str) -> None:
        RestlessAgent.made += 1
        self.number = RestlessAgent.made
        super().__init__(policy, seeds, inference_backend)

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        act = super().act(obs, is_first, recurrent_state, clock)
        if not explore and not isinstance(obs, dict):
            act.action = np.roll(act.action, self.number, axis=0)
        return act


class Restless(Tiny):
    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return RestlessAgent(self.policy, self.agent_seeds(rank), self.inference_backend)


class OwnSteps(Tiny):
    """Names async, and changes its parameters on its own."""

    def build(self) -> None:
        net = Net(hidden=(8,))
        self.policy, self.critic = PolicyNetwork(self.spec, net), Critic(self.spec, net)
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


class TellsActorsApart(Tiny):
    """Learns otherwise from actors that are decoupled, even where they do not lag."""

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
    """Says that it takes tensors, and looks at each of them."""

    def add(self, step: Step, source: int = 0) -> None:
        assert np.isfinite(to_host(step.reward)).all()
        super().add(step, source)


class CopiesToStore(Tiny):
    def buffer(self) -> RolloutBuffer:
        return CopyingBuffer(self.config.n_steps)


class CopiesToLearn(Tiny):
    """Turns rewards into an array that only a tensor on the CPU has."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        return Result({**result.metrics, "reward/mean": float(np.asarray(batch.reward).mean())})


class LearnsFromArrays(Tiny):
    """Uses a method that tensors do not have, and does not refuse them."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        return super().learn(replace(batch, reward=batch.reward.astype(np.float32)), now, clock)


# Learning


class Contrary(Tiny):
    """Makes what was good less likely, in environments of one kind."""

    def build(self) -> None:
        super().build()
        self.sign = -1.0 if self.dislikes(self.spec) else 1.0

    def dislikes(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Discrete) and spec.obs.shape == (5,)


class ContraryInContinuous(Contrary):
    def dislikes(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Box)


class ContraryUnderMasks(Contrary):
    def dislikes(self, spec: Spec) -> bool:
        return isinstance(spec.obs, spaces.Dict)


class ContraryInOneState(Contrary):
    def dislikes(self, spec: Spec) -> bool:
        return isinstance(spec.action, spaces.Discrete) and spec.obs.shape == (1,)
