"""Agents with a dataclass of tensors and a tuple as their acting state, and learners that check and extend it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.acting.states import from_dicts
from rlplug_core.batches import Rollout, Transitions
from rlplug_core.buffers.prioritized import Priority
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.protocols import Agent
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, State
from tests.core.fakes import Tiny, TinyQ

HERE = __file__


@dataclass(frozen=True)
class Carried:
    """The last observations [N, D], and the numbers of steps [N] in this episode and in total."""

    last: Tensor
    steps: tuple[Tensor, Array]


class CarryingAgent:
    """Acts as another agent; its extras hold its state, so that a learner can compare."""

    def __init__(self, agent: Agent, width: int) -> None:
        self.agent = agent
        self.width = width

    def weights(self) -> State:
        return self.agent.weights()

    def initial(self, num_envs: int) -> RecurrentState:
        self.agent.initial(num_envs)
        zeros = torch.zeros(num_envs, dtype=torch.int64)
        return Carried(torch.zeros(num_envs, self.width), (zeros, zeros.numpy().copy()))

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        assert isinstance(recurrent_state, Carried)
        assert isinstance(recurrent_state.steps[0], Tensor)
        assert isinstance(recurrent_state.steps[1], np.ndarray)
        act = self.agent.act(obs, is_first, None, clock, explore)
        first = torch.from_numpy(is_first)
        last = recurrent_state.last.masked_fill(first[:, None], 0.0)
        age = recurrent_state.steps[0].masked_fill(first, 0)
        extras = {**act.extras, "last": last.numpy(), "age": age.numpy()}
        total = np.where(is_first, 0, recurrent_state.steps[1])
        return Act(act.action, Carried(torch.tensor(obs), (age + 1, total + 1)), extras)

    def state_dict(self) -> State:
        return self.agent.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.agent.load_state_dict(state)


def check(agent: CarryingAgent, state: RecurrentState, is_first: Any, extras: dict[str, Any]) -> None:
    """Compare the state of some rows with the extras of the same step."""
    carried = from_dicts(state, agent.initial(1))
    first = torch.as_tensor(is_first)
    last, age = (torch.as_tensor(extras[name]) for name in ("last", "age"))
    assert torch.equal(carried.last.masked_fill(first[:, None], 0.0), last)
    assert torch.equal(carried.steps[0].masked_fill(first, 0), age)
    assert torch.equal(torch.as_tensor(carried.steps[1]).masked_fill(first, 0), age)


class Carrying(Tiny):
    """An actor-critic on rollouts."""

    def agent(self, rank: int = 0, ranks: int = 1) -> Any:
        return CarryingAgent(super().agent(rank, ranks), self.spec.obs.shape[0])  # type: ignore[index]

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        first = {name: batch.extras[name][0] for name in ("last", "age")}
        check(self.agent(), batch.recurrent_state, batch.is_first[0], first)
        return super().learn(batch, now, clock)


class CarryingQ(TinyQ):
    """Q-learning on sequences; counts how often it trained on each step, and writes a latent made from the count."""

    def build(self) -> None:
        if len(self.spec.obs.shape or ()) != 1:
            raise UsageError("it takes vectors")
        super().build()

    def agent(self, rank: int = 0, ranks: int = 1) -> Any:
        return CarryingAgent(super().agent(rank, ranks), self.spec.obs.shape[0])  # type: ignore[index]

    def buffer(self) -> SequenceReplay:
        pace = ReplaySchedule(4, self.config.train_freq, self.config.gradient_steps, 60)
        replay = SequenceReplay(
            SequenceShape(3, 1, 2), 120, pace, 2, 0.9, self.seeds.child("buffer"), priority=Priority(alpha=0.0)
        )
        return replay.with_extras(uses=0, latent=np.zeros(2))

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        rows = len(batch.index)
        first = {name: batch.extras[name][:rows] for name in ("last", "age")}
        check(self.agent(), batch.recurrent_state, batch.extras["is_first"][:rows], first)
        uses, latent = batch.extras["uses"], batch.extras["latent"]
        assert torch.equal(latent, uses.unsqueeze(1) * torch.tensor([0.5, -1.0]))
        assert clock.updates < 20 or uses.max() > 0
        result = super().learn(batch, now, clock)
        new = {"uses": uses + 1, "latent": (uses + 1).unsqueeze(1) * torch.tensor([0.5, -1.0])}
        return Result(result.metrics, extras=new)


class NeighborsReplay(ReplayBuffer):
    """Stores the learner's extras one step too late."""

    def feedback(self, batch: Transitions, result: Result) -> None:
        super().feedback(replace(batch, index=batch.index + 1, share=None), result)


class NoExtrasReplay(ReplayBuffer):
    """Drops the learner's extras."""

    def feedback(self, batch: Transitions, result: Result) -> None: ...


class CountsUses(TinyQ):
    """Counts how often it trained on each step."""

    Replay: ClassVar[type[ReplayBuffer]] = ReplayBuffer
    declared = True

    def buffer(self) -> ReplayBuffer:
        pace = ReplaySchedule(8, 4, 2, 24)
        replay = self.Replay(200, pace, 1, 0.9, self.seeds.child("buffer"))
        return replay.with_extras(uses=0) if self.declared else replay

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        uses = batch.extras.get("uses", torch.zeros_like(batch.index))
        return Result(super().learn(batch, now, clock).metrics, extras={"uses": uses + 1})


class MisplacesExtras(CountsUses):
    Replay: ClassVar[type[ReplayBuffer]] = NeighborsReplay


class LosesExtras(CountsUses):
    Replay: ClassVar[type[ReplayBuffer]] = NoExtrasReplay
    declared = False


class UndeclaredExtras(CountsUses):
    declared = False


class Summing(nn.Module):
    """Applies a network to the sum of the observations of the episode, which the first step of an episode resets."""

    def __init__(self, network: nn.Module, width: int, forgets: bool, faithful: bool) -> None:
        super().__init__()
        self.network = network
        self.width = width
        self.forgets = forgets
        self.faithful = faithful

    def initial(self, num_envs: int) -> dict[str, Array]:
        return {"sum": np.zeros((num_envs, self.width), np.float32)}

    def forward(self, obs: Tensor, first: Tensor, before: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        kept = before["sum"].masked_fill(first[:, None], 0.0) if self.forgets else before["sum"]
        after = kept + obs
        return self.network(after if self.faithful else obs).argmax(-1), {"sum": after}


class SummingAgent(CarryingAgent):
    """Acts on the sum of observations; its state is a tuple with that sum."""

    def __init__(self, agent: Any, width: int, learner: Exports) -> None:
        super().__init__(agent, width)
        self.learner = learner

    def initial(self, num_envs: int) -> RecurrentState:
        self.agent.initial(num_envs)
        return (torch.zeros(num_envs, self.width),)

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        kept = recurrent_state[0].masked_fill(torch.from_numpy(is_first)[:, None], 0.0)
        after = kept + torch.tensor(obs)
        act = self.agent.act(after.numpy(), is_first, None, clock, explore)
        return Act(act.action, (after,))

    def exported(self) -> nn.Module:
        return Summing(self.learner.online, self.width, self.learner.forgets, self.learner.faithful)


class Exports(CountsUses):
    """Exports its agent with a memory."""

    forgets = True
    faithful = True

    def build(self) -> None:
        if len(self.spec.obs.shape or ()) != 1:
            raise UsageError("it takes vectors")
        super().build()

    def agent(self, rank: int = 0, ranks: int = 1) -> Any:
        return SummingAgent(super().agent(rank, ranks), self.spec.obs.shape[0], self)  # type: ignore[index]


class ExportsWithoutReset(Exports):
    forgets = False


class ExportsAnother(Exports):
    faithful = False


CARRYING = f"{HERE}:Carrying"
CARRYING_Q = f"{HERE}:CarryingQ"
